// Views: pure index arithmetic, without kernels. Exception: concat, whose parts are written in place. Pads
// are in pad.cpp.
#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

// ---- reshape, permute, expand ----------------------------------------------------------------------------

Inferred reshape_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Shape shape = node.attributes.exprs("shape");
  const Shape& from = b.shape(node.inputs[0]);
  for (sym::Expr dim : shape) b.require(sym::ge(dim, 0), "reshape: size {0} is negative", {dim});
  const sym::Expr before = element_count(from), after = element_count(shape);
  if (!(before == after))
    b.require(
        sym::eq(before, after),
        cat("reshape: ", to_string(from), " of {0} elements cannot become ", to_string(shape), " of {1}"),
        {before, after});
  std::optional<Elements> elements = b.known(node.inputs[0]);
  if (elements)
    if (const auto size = sym::as_const(b.simplify(after)); size && *size != std::ssize(*elements))
      elements.reset();  // out of range, in a body that never runs
  return {{{b.dtype(node.inputs[0]), shape}}, {std::move(elements)}};
}

void reshape_lower(Lowering& l, const Node& node) {
  const Shape& shape = l.type(node.outputs[0]).shape;
  l.alias(node.outputs[0], loop::reshape(l.view(node.inputs[0]), shape, l.facts()));
}

Ids reshape_gradient(Builder& b, const Node& node, const Ids& outputs) {
  return {reshape(Term(b, outputs[0]), b.shape(node.inputs[0]))};
}

Inferred permute_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const auto& order = node.attributes.integers("order");
  const Shape& from = b.shape(node.inputs[0]);
  std::vector<int64_t> sorted = normal_dims(order, static_cast<int>(from.size()), "permute");
  if (sorted.size() != from.size())
    does_not_fit(cat("permute: an order of ", order.size(), " dims for a tensor of rank ", from.size()));
  Shape shape;
  for (int64_t dim : order) {
    STRIDEC_CHECK(dim >= 0);
    shape.push_back(from[static_cast<size_t>(dim)]);
  }
  std::optional<Elements> elements;
  const auto known = b.known(node.inputs[0]);
  const auto sizes = constant_shape(from);
  if (known && sizes)
    elements = map_elements(shape, [&](const Coordinates& at) {
      Coordinates source(at.size());
      for (size_t i = 0; i < at.size(); ++i) source[static_cast<size_t>(order[i])] = at[i];
      return element_at(*known, source, *sizes);
    });
  return {{{b.dtype(node.inputs[0]), shape}}, {std::move(elements)}};
}

void permute_lower(Lowering& l, const Node& node) {
  const auto& order = node.attributes.integers("order");
  l.alias(node.outputs[0], loop::permute(l.view(node.inputs[0]), {order.begin(), order.end()}));
}

Ids permute_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const auto& order = node.attributes.integers("order");
  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return {permute(Term(b, outputs[0]), back)};
}

Inferred expand_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Shape shape = node.attributes.exprs("shape");
  const Shape& from = b.shape(node.inputs[0]);
  if (from.size() > shape.size())
    does_not_fit(cat("expand: ", to_string(from), " has more dims than ", to_string(shape)));
  for (size_t i = 0; i < from.size(); ++i) {
    const sym::Expr a = from[i], to = shape[shape.size() - from.size() + i];
    if (a == to || a.is_const(1)) continue;
    b.require(sym::logical_or(sym::eq(a, to), sym::eq(a, 1)), "expand: dim {0} cannot become {1}", {a, to});
  }
  std::optional<Elements> elements;
  const auto known = b.known(node.inputs[0]);
  const auto sizes = constant_shape(from);
  if (known && sizes)
    elements = map_elements(shape, [&](const Coordinates& at) {
      Coordinates source(at.end() - static_cast<std::ptrdiff_t>(sizes->size()), at.end());
      for (size_t d = 0; d < source.size(); ++d)
        if ((*sizes)[d] == 1) source[d] = 0;
      return element_at(*known, source, *sizes);
    });
  return {{{b.dtype(node.inputs[0]), shape}}, {std::move(elements)}};
}

void expand_lower(Lowering& l, const Node& node) {
  l.alias(node.outputs[0], loop::expand(l.view(node.inputs[0]), l.type(node.outputs[0]).shape, l.facts()));
}

Ids expand_gradient(Builder& b, const Node& node, const Ids& outputs) {
  return {sum_to({b, outputs[0]}, b.shape(node.inputs[0]))};
}

// ---- slice -----------------------------------------------------------------------------------------------

Inferred slice_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Shape& from = b.shape(node.inputs[0]);
  const auto starts = node.attributes.exprs("starts"), extents = node.attributes.exprs("extents"),
             steps = node.attributes.exprs("steps");
  STRIDEC_CHECK(starts.size() == from.size() && extents.size() == from.size() && steps.size() == from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    STRIDEC_CHECK(!steps[i].is_const(0), "slice: a step of 0");
    if (starts[i].is_const(0) && extents[i] == from[i] && steps[i].is_const(1)) continue;
    b.require(sym::ge(extents[i], 0), "slice: the extent {0} is negative", {extents[i]});
    const sym::Expr last = starts[i] + (extents[i] - 1) * steps[i], up = sym::gt(steps[i], 0);
    const sym::Expr low = sym::select(up, starts[i], last), high = sym::select(up, last, starts[i]);
    const sym::Expr inside = sym::logical_and(sym::ge(low, 0), sym::lt(high, from[i]));
    b.require(sym::logical_or(sym::eq(extents[i], 0), inside),
              cat("slice: {0} elements from {1} by {2} leave dim ", i, " of size {3}"),
              {extents[i], starts[i], steps[i], from[i]});
  }
  std::optional<Elements> elements;
  const auto known = b.known(node.inputs[0]);
  const auto sizes = constant_shape(from);
  if (known && sizes)
    elements = map_elements(extents, [&](const Coordinates& at) -> std::optional<sym::Expr> {
      Coordinates source(at.size());
      for (size_t i = 0; i < at.size(); ++i) {
        const auto start = sym::as_const(starts[i]), step = sym::as_const(steps[i]);
        if (!start || !step) return std::nullopt;
        source[i] = *start + at[i] * *step;
      }
      return element_at(*known, source, *sizes);
    });
  return {{{b.dtype(node.inputs[0]), extents}}, {std::move(elements)}};
}

void slice_lower(Lowering& l, const Node& node) {
  loop::View view = l.view(node.inputs[0]);
  const auto starts = node.attributes.exprs("starts"), extents = node.attributes.exprs("extents"),
             steps = node.attributes.exprs("steps");
  for (size_t i = 0; i < starts.size(); ++i)
    if (!(starts[i].is_const(0) && extents[i] == view.shape[i] && steps[i].is_const(1)))
      view = loop::slice(view, static_cast<int>(i), starts[i], extents[i], steps[i]);
  l.alias(node.outputs[0], view);
}

// A slice whose step is known at run time: position p of the input reads element (p - start) / step of g
// where that is one, and a zero that is appended to g elsewhere.
Term spread_slice(Term g, int64_t dim, sym::Expr size, sym::Expr start, sym::Expr step) {
  Builder& b = g.builder();
  const sym::Expr extent = g.dim(dim);
  Shape none(static_cast<size_t>(g.rank()), 0), one = none;
  one[static_cast<size_t>(dim)] = 1;
  const Term from = index_along(b, {size}, 0, DType::kI64) - size_as(b, DType::kI64, start),
             by = size_as(b, DType::kI64, step), at = from / by, end = size_as(b, DType::kI64, extent);
  const Term hit =
      logical_and(equal(apply(OpKind::kMod, from, by), 0), logical_and(greater_equal(at, 0), less(at, end)));
  return gather(pad(g, none, one, 0), select(hit, at, end), dim);
}

// Scatters the gradient into zeros: each element of a slice with step s becomes a block of s positions, one
// of which holds the gradient.
Ids slice_gradient(Builder& b, const Node& node, const Ids& outputs) {
  Term g(b, outputs[0]);
  const Shape& from = b.shape(node.inputs[0]);
  const auto starts = node.attributes.exprs("starts"), extents = node.attributes.exprs("extents"),
             steps = node.attributes.exprs("steps");
  Shape before, after;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!steps[i].is_const()) {
      g = spread_slice(g, static_cast<int64_t>(i), from[i], starts[i], steps[i]);
      before.push_back(0), after.push_back(0);
      continue;
    }
    const int64_t step = steps[i].value(), dim = static_cast<int64_t>(i), places = std::abs(step);
    sym::Expr start = starts[i];
    if (step < 0) {
      g = flip(g, {dim});
      start += (extents[i] - 1) * step;
    }
    if (places > 1) {
      const Shape flat = g.shape();
      g = unsqueeze(g, {dim + 1});
      Shape none(static_cast<size_t>(g.rank()), 0), more = none;
      more[i + 1] = places - 1;
      g = pad(g, none, more, 0);
      Shape wide = flat;
      wide[i] *= places;
      g = reshape(g, wide);
    }
    // An empty slice has no first position.
    before.push_back(b.simplify(sym::select(sym::eq(extents[i], 0), 0, start)));
    after.push_back(b.simplify(from[i] - before[i] - extents[i] * places));
  }
  return {pad(g, before, after, 0)};
}

// ---- concat ----------------------------------------------------------------------------------------------

Inferred concat_shape(Builder& b, const Node& node) {
  STRIDEC_CHECK(!node.inputs.empty());
  Shape shape = b.shape(node.inputs[0]);
  const size_t dim = dim_attribute(node, "dim", shape.size());
  bool all_known = true;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Shape& other = b.shape(node.inputs[i]);
    if (!b.known(node.inputs[i]) || !constant_shape(other)) all_known = false;
    if (i == 0) continue;
    expect_same_dtype(b, node, 0, i);
    if (other.size() != shape.size())
      does_not_fit(cat("concat: ", to_string(shape), " and ", to_string(other), " differ in rank"));
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d == dim)
        shape[d] += other[d];
      else
        expect_equal(b, shape[d], other[d],
                     cat("concat: dim ", d, " is {0} in the first input and {1} in input ", i));
    }
  }
  std::optional<Elements> elements;
  if (all_known)
    elements = map_elements(shape, [&](Coordinates at) -> std::optional<sym::Expr> {
      for (ValueId input : node.inputs) {
        const auto sizes = constant_shape(b.shape(input));
        if (at[dim] < (*sizes)[dim]) return element_at(*b.known(input), at, *sizes);
        at[dim] -= (*sizes)[dim];
      }
      return std::nullopt;
    });
  return {{{b.dtype(node.inputs[0]), shape}}, {std::move(elements)}};
}

// Copies every part into its slice; fusion may let the part's producer write there directly.
void concat_lower(Lowering& l, const Node& node) {
  const int dim = static_cast<int>(node.attributes.integer("dim"));
  const loop::View to = l.define_whole(node.outputs[0]);
  sym::Expr start = 0;
  for (ValueId input : node.inputs) {
    const sym::Expr extent = l.type(input).shape[static_cast<size_t>(dim)];
    if (!extent.is_const(0) && !l.is_in_place(input))
      l.copy(l.view(input), loop::slice(to, dim, start, extent, 1), "concat");
    start += extent;
  }
}

Ids concat_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const int64_t dim = node.attributes.integer("dim");
  Ids out;
  sym::Expr start = 0;
  for (ValueId input : node.inputs) {
    const sym::Expr extent = b.shape(input)[static_cast<size_t>(dim)];
    out.push_back(slice(Term(b, outputs[0]), dim, start, extent));
    start += extent;
  }
  return out;
}

// ---- stop_gradient ---------------------------------------------------------------------------------------

Inferred stop_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  return {{b.type(node.inputs[0])}, {b.known(node.inputs[0])}};
}

void stop_lower(Lowering& l, const Node& node) { l.alias(node.outputs[0], l.view(node.inputs[0])); }

// ---- as_softmax ------------------------------------------------------------------------------------------

Inferred as_softmax_shape(Builder& b, const Node& node) {
  expect_inputs(node, 2, 2);
  const Type x = b.type(node.inputs[0]), y = b.type(node.inputs[1]);
  if (x.dtype != y.dtype || x.shape != y.shape) does_not_fit("x and y differ in type");
  return {{y}};
}

void as_softmax_lower(Lowering& l, const Node& node) { l.alias(node.outputs[0], l.view(node.inputs[1])); }

Ids as_softmax_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term y(b, node.outputs[0]), g(b, outputs[0]);
  return {(y * (g - reduce_sum(g * y, node.attributes.integers("dims"), kKeep))).id(), ValueId()};
}

}  // namespace

const OpDef def_kReshape{reshape_shape, reshape_lower, Gradient::by(reshape_gradient, "x: reshape(g)")};
const OpDef def_kPermute{permute_shape, permute_lower,
                         Gradient::by(permute_gradient, "x: permute(g) by the inverse order")};
const OpDef def_kExpand{expand_shape, expand_lower,
                        Gradient::by(expand_gradient, "x: sum of g over the repeated dims")};
const OpDef def_kSlice{slice_shape, slice_lower,
                       Gradient::by(slice_gradient, "x: g at the places of the slice, 0 elsewhere")};
const OpDef def_kConcat{concat_shape, concat_lower,
                        Gradient::by(concat_gradient, "each input: its slice of g")};
const OpDef def_kAsSoftmax{as_softmax_shape, as_softmax_lower,
                           Gradient::by(as_softmax_gradient, "x: y * (g - sum(g * y)); y: none")};
const OpDef def_kStopGradient{stop_shape, stop_lower, Gradient::flat("on purpose")};

}  // namespace stridec::ops
