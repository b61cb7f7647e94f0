// State tensors: the artifact keeps them between runs.
#include "compiler/base/text.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

Inferred update_state_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  const Type &state = b.type(node.inputs[0]), &value = b.type(node.inputs[1]);
  if (state.dtype != value.dtype || state.shape.size() != value.shape.size())
    does_not_fit(cat("a state of ", graph::to_string(state), " cannot hold ", graph::to_string(value)));
  for (size_t d = 0; d < state.shape.size(); ++d)
    expect_equal(b, state.shape[d], value.shape[d],
                 cat("update_state: dim ", d, " is {0} in the state and {1} in the new value"));
  return {};
}

void update_state_lower(Lowering& l, const Node& node) { l.update_state(node.inputs[0], node.inputs[1]); }

}  // namespace

const OpDef def_kUpdateState{update_state_shape, update_state_lower, Gradient::none("no results")};

}  // namespace stridec::ops
