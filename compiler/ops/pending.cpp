// Rows whose family file does not exist yet.
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/op_table.h"

namespace stridec::ops {
namespace {
graph::Inferred pending_shape(graph::Builder&, const graph::Node& node) {
  fail(ErrorKind::kUnsupported, "unsupported-op",
       cat("the op ", graph::name(node.kind), " is not there yet"));
}
}  // namespace
#define PENDING(id) const OpDef def_##id{pending_shape, nullptr};
PENDING(kReduceWindow)
PENDING(kWindowArgMax)
PENDING(kAveragePool) PENDING(kResize) PENDING(kSort) PENDING(kTopK) PENDING(kNonZero) PENDING(kSymbolOf)
    PENDING(kIf) PENDING(kLoop) PENDING(kUpdateState)
}  // namespace stridec::ops
