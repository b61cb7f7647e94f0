// Sort and top-k: stable library routines over rows [outer, extent, inner].
#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

struct Rows {
  sym::Expr outer, extent, inner;
};

Rows rows(const Shape& shape, size_t dim) {
  return {sym::product({shape.data(), dim}), shape[dim],
          sym::product({shape.data() + dim + 1, shape.size() - dim - 1})};
}

size_t dim_of(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  return dim_attribute(node, "dim", b.shape(node.inputs[0]).size());
}

Inferred sort_shape(Builder& b, const Node& node) {
  dim_of(b, node);
  const Type& type = b.type(node.inputs[0]);
  return {{type, {DType::kI64, type.shape}}, {}};
}

// sort: x -> values, indices; outer, extent, inner, descending
void sort_lower(Lowering& l, const Node& node) {
  const loop::View x = l.materialise(l.view(node.inputs[0]), "sort_input");
  const loop::View values = l.define(node.outputs[0]), indices = l.define(node.outputs[1]);
  const Rows r = rows(x.shape, static_cast<size_t>(node.attributes.integer("dim")));
  loop::Call call{.routine = "sort",
                  .reads = {x.buffer},
                  .writes = {values.buffer, indices.buffer},
                  .arguments = {r.outer, r.extent, r.inner, node.attributes.integer_or("descending", 0)},
                  .nodes = {}};
  if (!node.origin.empty()) call.nodes.push_back(node.origin);
  l.steps().push_back({std::move(call)});
}

Inferred topk_shape(Builder& b, const Node& node) {
  const size_t dim = dim_of(b, node);
  Type type = b.type(node.inputs[0]);
  const sym::Expr k = node.attributes.expr("k");
  b.require(sym::logical_and(sym::ge(k, 0), sym::le(k, type.shape[dim])),
            "topk: k is {0}, the dim has {1} elements", {k, type.shape[dim]});
  type.shape[dim] = k;
  return {{type, {DType::kI64, type.shape}}, {}};
}

// topk: x -> values, indices; outer, extent, inner, k, largest, sorted
void topk_lower(Lowering& l, const Node& node) {
  const loop::View x = l.materialise(l.view(node.inputs[0]), "topk_input");
  const loop::View values = l.define(node.outputs[0]), indices = l.define(node.outputs[1]);
  const Rows r = rows(x.shape, static_cast<size_t>(node.attributes.integer("dim")));
  loop::Call call{
      .routine = "topk",
      .reads = {x.buffer},
      .writes = {values.buffer, indices.buffer},
      .arguments = {r.outer, r.extent, r.inner, node.attributes.expr("k"),
                    node.attributes.integer_or("largest", 1), node.attributes.integer_or("sorted", 1)},
      .nodes = {}};
  if (!node.origin.empty()) call.nodes.push_back(node.origin);
  l.steps().push_back({std::move(call)});
}

Ids order_gradient(Builder& b, const Node& node, const Ids& outputs) {
  if (!outputs[0].valid()) return {};
  const Type& x = b.type(node.inputs[0]);
  return {b.add1(OpKind::kScatterElements, {filled(b, x.shape, x.dtype, 0), node.outputs[1], outputs[0]},
                 {{"dim", node.attributes.integer("dim")}, {"reduction", std::string("add")}})};
}

}  // namespace

const OpDef def_kSort{sort_shape, sort_lower,
                      Gradient::by(order_gradient, "x: scatter_elements(0, indices, g, add)",
                                   "equal elements keep their order")};
const OpDef def_kTopK{topk_shape, topk_lower,
                      Gradient::by(order_gradient, "x: scatter_elements(0, indices, g, add)",
                                   "elements that were not chosen get 0")};

}  // namespace stridec::ops
