// Views: pure index arithmetic, without kernels. Exceptions: pads that no mask can express, and concat, whose
// parts are written in place.
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

// Scatters the gradient into zeros: each element of a slice with step s becomes a block of s positions, one
// of which holds the gradient.
Ids slice_gradient(Builder& b, const Node& node, const Ids& outputs) {
  Term g(b, outputs[0]);
  const Shape& from = b.shape(node.inputs[0]);
  const auto starts = node.attributes.exprs("starts"), extents = node.attributes.exprs("extents"),
             steps = node.attributes.exprs("steps");
  Shape before, after;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!steps[i].is_const()) no_gradient(node, "its step is known to the run alone");
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

// ---- pad -------------------------------------------------------------------------------------------------

Inferred pad_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 2);
  const Shape& from = b.shape(node.inputs[0]);
  const auto before = node.attributes.exprs("before"), after = node.attributes.exprs("after");
  STRIDEC_CHECK(before.size() == from.size() && after.size() == from.size());
  const std::string mode = node.attributes.text_or("mode", "constant");
  STRIDEC_CHECK(mode == "constant" || mode == "edge" || mode == "reflect" || mode == "wrap", mode);
  if (node.inputs.size() == 2) {
    expect_same_dtype(b, node, 0, 1);
    if (b.rank(node.inputs[1]) != 0) does_not_fit("pad: the value is a scalar");
  }
  Shape shape;
  for (size_t i = 0; i < from.size(); ++i) {
    shape.push_back(from[i] + before[i] + after[i]);
    if (before[i].is_const(0) && after[i].is_const(0)) continue;
    b.require(sym::ge(shape[i], 0), cat("pad: dim ", i, " of size {0} would be {1}"), {from[i], shape[i]});
    if (mode != "constant" && !b.simplify(before[i] + after[i]).is_const(0))
      b.require(sym::logical_or(sym::ge(from[i], 1), sym::eq(shape[i], 0)),
                cat("pad: mode ", mode, " has nothing to repeat in dim ", i, " of size {0}"), {from[i]});
  }
  return {{{b.dtype(node.inputs[0]), shape}}, {}};
}

// The input index for position i, which ranges from -before to size + after.
sym::Expr source_index(const std::string& mode, sym::Expr i, sym::Expr size, sym::Expr before,
                       sym::Expr after, const sym::Facts& facts) {
  if (mode == "edge") return sym::max(sym::min(i, size - 1), 0);
  if (mode == "wrap") return sym::mod(i, size);
  // reflect: period 2 (size - 1), edges are not repeated
  if (facts.holds(sym::lt(before, size)) &&
      facts.holds(sym::lt(after, size))) {  // at most one reflection at each end
    const sym::Expr from_start = sym::max(i, -i);
    return sym::min(from_start, 2 * (size - 1) - from_start);
  }
  const sym::Expr period = facts.holds(sym::ge(size, 2)) ? 2 * (size - 1) : sym::max(2 * (size - 1), 1);
  const sym::Expr m = sym::mod(i, period);
  return sym::select(sym::lt(m, size), m, period - m);
}

void pad_lower(Lowering& l, const Node& node) {
  const auto before = node.attributes.exprs("before"), after = node.attributes.exprs("after");
  const std::string mode = node.attributes.text_or("mode", "constant");
  const DType dtype = l.type(node.inputs[0]).dtype;
  loop::View from = l.view(node.inputs[0]);
  if (mode != "constant") {
    const loop::View to = l.define(node.outputs[0]);
    loop::NestBuilder n = l.nest("pad_" + mode);
    const auto at = n.dims(to.shape);
    std::vector<sym::Expr> source;
    for (size_t i = 0; i < at.size(); ++i) {
      const bool whole = before[i].is_const(0) && after[i].is_const(0);
      source.push_back(
          whole ? at[i]
                : source_index(mode, at[i] - before[i], from.shape[i], before[i], after[i], l.facts()));
    }
    n.store(to, at, n.load(from, source));
    n.finish(&l.steps());
    return;
  }
  std::optional<loop::Scalar> fill = loop::int_scalar(dtype, 0);
  if (node.inputs.size() == 2) fill = l.constant_scalar(node.inputs[1]);
  if (fill) {
    std::optional<loop::View> padded = loop::pad(from, before, after, *fill);
    if (!padded) padded = loop::pad(l.materialise(from, "pad_source"), before, after, *fill);
    STRIDEC_CHECK(padded.has_value());
    l.alias(node.outputs[0], *padded);
    return;
  }
  const loop::View to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("pad");
  const auto at = n.dims(to.shape);
  std::vector<sym::Expr> source;
  sym::Expr inside = 1;
  for (size_t i = 0; i < at.size(); ++i) {
    source.push_back(at[i] - before[i]);
    if (!before[i].is_const(0) || !after[i].is_const(0))
      inside = sym::logical_and(inside,
                                sym::logical_and(sym::ge(source[i], 0), sym::lt(source[i], from.shape[i])));
  }
  loop::Access element = access(from, source);
  element.mask = sym::logical_and(element.mask, inside);
  const loop::Value loaded = n.load(element, from.fill);
  n.store(to, at,
          loop::select(n.index_value(inside, DType::kBool), loaded, l.read(n, node.inputs[1], to.shape, at)));
  n.finish(&l.steps());
}

Ids pad_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term g(b, outputs[0]);
  Shape before = node.attributes.exprs("before"), after = node.attributes.exprs("after");
  const std::string mode = node.attributes.text_or("mode", "constant");
  bool turns = mode == "wrap";
  for (size_t i = 0; i < before.size(); ++i) {
    turns = turns && b.simplify(before[i] + after[i]).is_const(0);
    before[i] = -before[i];
    after[i] = -after[i];
  }
  if (turns) return {b.add1(OpKind::kPad, {g}, {{"before", before}, {"after", after}, {"mode", mode}})};
  if (mode != "constant") no_gradient(node, "its mode repeats elements");
  Ids out{pad(g, before, after, 0)};
  if (node.inputs.size() > 1) {
    const auto total = [](Term t) {
      Dims all;
      for (int64_t d = 0; d < t.rank(); ++d) all.push_back(d);
      return all.empty() ? t : reduce_sum(t, all);
    };
    out.push_back(total(g) - total(Term(b, out[0])));
  }
  return out;
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
  const loop::View to = l.define(node.outputs[0]);
  sym::Expr start = 0;
  for (ValueId input : node.inputs) {
    const sym::Expr extent = l.type(input).shape[static_cast<size_t>(dim)];
    if (!extent.is_const(0)) l.copy(l.view(input), loop::slice(to, dim, start, extent, 1), "concat");
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

}  // namespace

const OpDef def_kReshape{reshape_shape, reshape_lower, reshape_gradient};
const OpDef def_kPermute{permute_shape, permute_lower, permute_gradient};
const OpDef def_kExpand{expand_shape, expand_lower, expand_gradient};
const OpDef def_kSlice{slice_shape, slice_lower, slice_gradient};
const OpDef def_kPad{pad_shape, pad_lower, pad_gradient};
const OpDef def_kConcat{concat_shape, concat_lower, concat_gradient};

}  // namespace stridec::ops
