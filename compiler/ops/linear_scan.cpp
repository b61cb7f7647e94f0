// First-order linear recurrences along a dim: y[i] = a[i] * y[i - 1] + b[i], from y[-1] = 0; with `reverse`
// from the end. The gradient of a cumulative product is one, and so is its own gradient.
#include "compiler/ops/gradient.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

Inferred linear_scan_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  expect_same_dtype(b, node, 0, 1);
  const Type& type = b.type(node.inputs[0]);
  const Shape& other = b.shape(node.inputs[1]);
  if (is_bool(type.dtype) || other.size() != type.shape.size())
    does_not_fit("linear_scan takes two tensors of numbers of one shape");
  dim_attribute(node, "dim", type.shape.size());
  for (size_t d = 0; d < other.size(); ++d)
    expect_equal(b, type.shape[d], other[d],
                 "linear_scan: a size is {0} in one operand and {1} in the other");
  return {{type}, {}};
}

void linear_scan_lower(Lowering& l, const Node& node) {
  const loop::View a = l.view(node.inputs[0]), b = l.view(node.inputs[1]), to = l.define(node.outputs[0]);
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  const bool reverse = node.attributes.integer_or("reverse", 0) != 0;
  const DType wide = compute_dtype(to.dtype);
  loop::NestBuilder n = l.nest("linear_scan");
  Shape others = to.shape;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(dim));
  const auto outer = n.dims(others);
  const loop::Value zero = n.constant(loop::int_scalar(wide, 0));
  n.scan(to.shape[dim], reverse, {zero}, [&](sym::Expr i, const std::vector<loop::Value>& carried) {
    std::vector<sym::Expr> at = outer;
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), i);
    const loop::Value next = n.cast(n.load(a, at), wide) * carried[0] + n.cast(n.load(b, at), wide);
    n.store(to, at, n.cast(next, to.dtype));
    return std::vector<loop::Value>{next};
  });
  n.finish(&l.steps());
}

Ids linear_scan_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term a(b, node.inputs[0]), y(b, node.outputs[0]);
  const int64_t dim = node.attributes.integer("dim");
  const bool reverse = node.attributes.integer_or("reverse", 0) != 0;
  const Term next = linear_scan(shifted(a, dim, reverse ? 1 : -1), {b, outputs[0]}, dim, !reverse);
  return {next * shifted(y, dim, reverse ? -1 : 1), next};
}

}  // namespace

const OpDef def_kLinearScan{
    linear_scan_shape, linear_scan_lower,
    Gradient::by(linear_scan_gradient, "b: h = linear_scan(a[i + 1], g) from the end; a: h y[i - 1]")};

}  // namespace stridec::ops
