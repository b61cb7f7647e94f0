// Reductions and scans over dims. Storage-only floats accumulate in f32; an empty range gives the identity.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

using loop::Combine;

// ---- reduce ----------------------------------------------------------------------------------------------

Combine combine_of(OpKind kind) {
  switch (kind) {
    case OpKind::kReduceProd: return Combine::kProd;
    case OpKind::kReduceMax: return Combine::kMax;
    case OpKind::kReduceMin: return Combine::kMin;
    case OpKind::kReduceAnd: return Combine::kAnd;
    case OpKind::kReduceOr: return Combine::kOr;
    default: return Combine::kSum;
  }
}

bool contains(const std::vector<int64_t>& dims, size_t dim) {
  return std::find(dims.begin(), dims.end(), static_cast<int64_t>(dim)) != dims.end();
}

Shape without_dims(const Shape& shape, const std::vector<int64_t>& dims) {
  Shape out;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!contains(dims, d)) out.push_back(shape[d]);
  return out;
}

sym::Expr combine_known(Combine combine, sym::Expr a, sym::Expr b) {
  switch (combine) {
    case Combine::kProd: return a * b;
    case Combine::kMax: return sym::max(a, b);
    case Combine::kMin: return sym::min(a, b);
    case Combine::kAnd: return sym::logical_and(a, b);
    case Combine::kOr: return sym::logical_or(a, b);
    default: return a + b;
  }
}

// Folds sums and products of known elements, such as sizes: one known dim is reduced.
std::optional<Elements> reduce_elements(Builder& b, const Node& node, const std::vector<int64_t>& dims,
                                        Combine combine, const Shape& shape) {
  const auto known = b.known(node.inputs[0]);
  const auto sizes = constant_shape(b.shape(node.inputs[0]));
  const DType dtype = b.dtype(node.inputs[0]);
  if (!known || !sizes || known->empty() || (!is_bool(dtype) && info(dtype).bits < 32)) return std::nullopt;
  const auto kept = constant_shape(shape);
  int64_t count = 1;
  for (int64_t size : *kept) count *= size;
  std::vector<std::optional<sym::Expr>> out(static_cast<size_t>(count));
  Coordinates at(sizes->size(), 0);
  for (sym::Expr element : *known) {
    Coordinates target;
    for (size_t d = 0; d < at.size(); ++d)
      if (!contains(dims, d)) target.push_back(at[d]);
    auto& slot = out[static_cast<size_t>(flat_index(target, *kept))];
    slot = slot ? combine_known(combine, *slot, element) : element;
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < (*sizes)[d]) break;
      at[d] = 0;
    }
  }
  Elements elements;
  for (const auto& slot : out) elements.push_back(*slot);
  return elements;
}

Inferred reduce_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const DType dtype = b.dtype(node.inputs[0]);
  const Combine combine = combine_of(node.kind);
  const bool logical = combine == Combine::kAnd || combine == Combine::kOr;
  if (logical != is_bool(dtype)) does_not_fit(cat(graph::name(node.kind), " does not take ", name(dtype)));
  const auto dims = normal_dims(node.attributes.integers("dims"), b.rank(node.inputs[0]), "a reduction");
  const Shape shape = without_dims(b.shape(node.inputs[0]), dims);
  return {{{dtype, shape}}, {reduce_elements(b, node, dims, combine, shape)}};
}

void reduce_lower(Lowering& l, const Node& node) {
  const loop::View from = l.view(node.inputs[0]), to = l.define(node.outputs[0]);
  const auto dims =
      normal_dims(node.attributes.integers("dims"), static_cast<int>(from.shape.size()), "a reduction");
  loop::NestBuilder n = l.nest(std::string(graph::name(node.kind)));
  const auto outer = n.dims(to.shape);
  std::vector<sym::Expr> extents;
  for (int64_t dim : dims) extents.push_back(from.shape[static_cast<size_t>(dim)]);
  const loop::Value result =
      n.reduce(combine_of(node.kind), extents, [&](const std::vector<sym::Expr>& inner) {
        std::vector<sym::Expr> at;
        size_t kept = 0, reduced = 0;
        for (size_t d = 0; d < from.shape.size(); ++d)
          at.push_back(contains(dims, d) ? inner[reduced++] : outer[kept++]);
        return n.cast(n.load(from, at), compute_dtype(from.dtype));
      });
  n.store(to, outer, n.cast(result, to.dtype));
  n.finish(&l.steps());
}

// ---- argmax, argmin --------------------------------------------------------------------------------------

Inferred arg_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Shape& from = b.shape(node.inputs[0]);
  const size_t dim = dim_attribute(node, "dim", from.size());
  Shape shape = without_dims(from, {static_cast<int64_t>(dim)});
  b.require(sym::logical_or(sym::ge(from[dim], 1), sym::eq(element_count(shape), 0)),
            cat(graph::name(node.kind), ": dim ", dim, " has no elements to choose from"));
  return {{{DType::kI64, std::move(shape)}}, {}};
}

void arg_lower(Lowering& l, const Node& node) {
  const loop::View from = l.view(node.inputs[0]), to = l.define(node.outputs[0]);
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  const bool last = node.attributes.integer_or("last", 0) != 0, max = node.kind == OpKind::kArgMax;
  const Combine combine = max ? (last ? Combine::kArgMaxLast : Combine::kArgMax)
                              : (last ? Combine::kArgMinLast : Combine::kArgMin);
  const DType key = is_bool(from.dtype) ? DType::kU8 : compute_dtype(from.dtype);
  loop::NestBuilder n = l.nest(std::string(graph::name(node.kind)));
  const auto outer = n.dims(to.shape);
  const auto results = n.reduce_many(combine, {from.shape[dim]}, [&](const std::vector<sym::Expr>& inner) {
    std::vector<sym::Expr> at = outer;
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), inner[0]);
    return std::vector<loop::Value>{n.cast(n.load(from, at), key), n.index_value(inner[0])};
  });
  n.store(to, outer, results[1]);
  n.finish(&l.steps());
}

// Restores the reduced dims with extent 1.
Term kept(Term reduced, const Shape& from, const Dims& dims) {
  Shape shape = from;
  for (int64_t d : dims) shape[static_cast<size_t>(d)] = 1;
  return reshape(reduced, shape);
}

Ids reduce_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term x(b, node.inputs[0]), y(b, node.outputs[0]);
  const auto dims = normal_dims(node.attributes.integers("dims"), static_cast<int>(x.rank()), "a reduction");
  const Term g = expand(kept({b, outputs[0]}, x.shape(), dims), x.shape());
  if (node.kind == OpKind::kReduceSum) return {g};
  if (node.kind == OpKind::kReduceProd) {
    // The product of all other elements: those before times those after, which is correct when elements are
    // 0.
    Dims order;
    for (int64_t d = 0; d < x.rank(); ++d)
      if (!contains(dims, static_cast<size_t>(d))) order.push_back(d);
    const int64_t last = static_cast<int64_t>(order.size());
    order.insert(order.end(), dims.begin(), dims.end());
    const Term moved = permute(x, order);
    Shape flat(moved.shape().begin(), moved.shape().begin() + last);
    flat.push_back(count(moved.shape(), last, moved.rank()));
    const auto products = [&](int64_t reverse) {
      return Term(b, b.add1(OpKind::kCumProd, {reshape(moved, flat)},
                            {{"dim", last}, {"exclusive", int64_t{1}}, {"reverse", reverse}}));
    };
    Dims back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    return {g * permute(reshape(products(0) * products(1), moved.shape()), back)};
  }
  // Elements equal to the extremum share the gradient evenly.
  const Term chosen = cast(equal(x, kept(y, x.shape(), dims)), x.dtype());
  return {g * chosen / reduce_sum(chosen, dims, kKeep)};
}

// ---- cumulative ------------------------------------------------------------------------------------------

Inferred cumulative_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Type& type = b.type(node.inputs[0]);
  if (is_bool(type.dtype)) does_not_fit(cat(graph::name(node.kind), " does not take bools"));
  dim_attribute(node, "dim", type.shape.size());
  return {{type}, {}};
}

void cumulative_lower(Lowering& l, const Node& node) {
  const loop::View from = l.view(node.inputs[0]), to = l.define(node.outputs[0]);
  const size_t dim = static_cast<size_t>(node.attributes.integer("dim"));
  const bool exclusive = node.attributes.integer_or("exclusive", 0) != 0;
  const bool reverse = node.attributes.integer_or("reverse", 0) != 0;
  const bool sum = node.kind == OpKind::kCumSum;
  const DType wide = compute_dtype(from.dtype);
  loop::NestBuilder n = l.nest(std::string(graph::name(node.kind)));
  Shape others = from.shape;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(dim));
  const auto outer = n.dims(others);
  const loop::Value start = n.constant(loop::int_scalar(wide, sum ? 0 : 1));
  n.scan(from.shape[dim], reverse, {start}, [&](sym::Expr i, const std::vector<loop::Value>& carried) {
    std::vector<sym::Expr> at = outer;
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), i);
    const loop::Value x = n.cast(n.load(from, at), wide);
    const loop::Value next = sum ? carried[0] + x : carried[0] * x;
    n.store(to, at, n.cast(exclusive ? carried[0] : next, to.dtype));
    return std::vector<loop::Value>{next};
  });
  n.finish(&l.steps());
}

// x[i] has a part in the products y[j] for j >= i: those of all elements before i, times a sum over j of g[j]
// and the elements between, which is a linear recurrence. No division: elements may be 0.
Ids cumprod_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term x(b, node.inputs[0]), g(b, outputs[0]);
  const int64_t dim = node.attributes.integer("dim");
  const bool reverse = node.attributes.integer_or("reverse", 0) != 0,
             exclusive = node.attributes.integer_or("exclusive", 0) != 0;
  const int64_t back = reverse ? 1 : -1;
  const Term before = cumulative_product(x, dim, /*exclusive=*/true, reverse);
  const Term from_here = exclusive ? shifted(g, dim, back) : g;
  return {before * linear_scan(shifted(x, dim, back), from_here, dim, !reverse)};
}

Ids cumsum_gradient(Builder& b, const Node& node, const Ids& outputs) {
  graph::Attributes attributes = node.attributes;
  attributes.set("reverse", int64_t{attributes.integer_or("reverse", 0) == 0});
  return {b.add1(OpKind::kCumSum, {outputs[0]}, std::move(attributes))};
}

}  // namespace

const OpDef def_kReduceSum{reduce_shape, reduce_lower, Gradient::by(reduce_gradient, "x: expand(g)")};
const OpDef def_kReduceProd{reduce_shape, reduce_lower,
                            Gradient::by(reduce_gradient, "x: g times the product of the other elements",
                                         "right where elements are 0")};
const OpDef def_kReduceMax{reduce_shape, reduce_lower,
                           Gradient::by(reduce_gradient, "x: g (x = y) / count(x = y)",
                                        "equal elements share g, as in PyTorch's amax")};
const OpDef def_kReduceMin{reduce_shape, reduce_lower,
                           Gradient::by(reduce_gradient, "x: g (x = y) / count(x = y)",
                                        "equal elements share g, as in PyTorch's amin")};
const OpDef def_kReduceAnd{reduce_shape, reduce_lower, Gradient::flat("bools")};
const OpDef def_kReduceOr{reduce_shape, reduce_lower, Gradient::flat("bools")};
const OpDef def_kArgMax{arg_shape, arg_lower, Gradient::flat("indices are integers")};
const OpDef def_kArgMin{arg_shape, arg_lower, Gradient::flat("indices are integers")};
const OpDef def_kCumSum{cumulative_shape, cumulative_lower,
                        Gradient::by(cumsum_gradient, "x: cumsum(g) from the other end")};
const OpDef def_kCumProd{
    cumulative_shape, cumulative_lower,
    Gradient::by(cumprod_gradient, "x: cumprod(x, exclusive) linear_scan(x[i + 1], g) from the other end",
                 "right where elements are 0")};

}  // namespace stridec::ops
