// Greedy non-maximum suppression of boxes: a library routine.
#include "compiler/base/text.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

Inferred suppress_shape(Builder& b, const Node& node) {
  expect_inputs(node, 4, 4);
  const Type &corners = b.type(node.inputs[0]), &eligible = b.type(node.inputs[1]);
  if (corners.dtype != DType::kF32 || corners.shape.size() != 3)
    does_not_fit(cat("suppress: corners are f32 [rows, 4, boxes], not ", graph::to_string(corners)));
  if (!is_bool(eligible.dtype) || eligible.shape.size() != 2)
    does_not_fit(cat("suppress: the mask of eligible boxes must be bool [rows, boxes], not ",
                     graph::to_string(eligible)));
  b.require(sym::eq(corners.shape[1], 4), "suppress: {0} corners instead of 4", {corners.shape[1]});
  for (size_t d : {0, 1})
    b.require(sym::eq(eligible.shape[d], corners.shape[2 * d]), "suppress: {0} and {1} boxes or rows",
              {eligible.shape[d], corners.shape[2 * d]});
  if (b.type(node.inputs[2]) != Type{DType::kI64, {}} || b.type(node.inputs[3]) != Type{DType::kF32, {}})
    does_not_fit("suppress: the limit of boxes must be an i64 scalar, and the overlap an f32 scalar");
  return {{eligible}, {}};
}

// suppress: corners, eligible, most, overlap -> kept; rows, boxes
void suppress_lower(Lowering& l, const Node& node) {
  loop::Call call{.routine = "suppress", .reads = {}, .writes = {}, .arguments = {}, .nodes = {}};
  for (ValueId input : node.inputs)
    call.reads.push_back(l.materialise(l.view(input), "suppress_input").buffer);
  const loop::View kept = l.define(node.outputs[0]);
  call.writes = {kept.buffer};
  call.arguments = {kept.shape[0], kept.shape[1]};
  if (!node.origin.empty()) call.nodes.push_back(node.origin);
  l.steps().push_back({std::move(call)});
}

}  // namespace

const OpDef def_kSuppress{suppress_shape, suppress_lower, Gradient::flat("the result is a bool")};

Term suppress(Term corners, Term eligible, Term most, Term overlap) {
  return {corners.builder(), corners.builder().add1(OpKind::kSuppress, {corners, eligible, most, overlap})};
}

}  // namespace stridec::ops
