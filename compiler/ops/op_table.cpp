#include "compiler/ops/op_table.h"

namespace stridec::ops {

const OpDef& op_def(graph::OpKind kind) {
  static const OpDef* const table[] = {
#define STRIDEC_OP(id, ...) &def_##id,
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP
  };
  return *table[static_cast<int>(kind)];
}

const graph::ShapeTable& shape_table() {
  static const graph::ShapeTable table = {{
#define STRIDEC_OP(id, ...) def_##id.shape,
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP
  }};
  return table;
}

}  // namespace stridec::ops
