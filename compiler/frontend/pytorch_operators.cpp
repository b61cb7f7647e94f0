#include "compiler/frontend/pytorch_operators.h"

#include "compiler/base/text.h"
#include "compiler/frontend/aten/operators.h"

namespace stridec::frontend {

std::vector<OperatorInfo> pytorch_operators() {
  std::vector<OperatorInfo> out;
  for (const aten::OperatorSupport& op : aten::operator_support()) {
    const bool some = !op.supported.empty(), all = op.unsupported.empty();
    out.push_back({.name = op.name,
                   .versions = join(op.supported, ", "),
                   .through = some ? "row" : "",
                   .types = {},
                   .limits = some && !all ? cat("not: ", join(op.unsupported, ", ")) : ""});
  }
  return out;
}

}  // namespace stridec::frontend
