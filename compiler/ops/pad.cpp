// pad: constant pads are views, if their value is known; pads that repeat elements (edge, reflect, wrap) are
// kernels.
#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

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

// ---- gradients -------------------------------------------------------------------------------------------

// A tensor whose dim `dim` has the size `size`; that of others does not change.
Shape with_size(const Term& x, int64_t dim, sym::Expr size) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(dim)] = size;
  return shape;
}

// Pads or crops one dim with zeros.
Term pad_dim(Term x, int64_t dim, sym::Expr before, sym::Expr after) {
  const Shape none(static_cast<size_t>(x.rank()), 0);
  Shape low = none, high = none;
  low[static_cast<size_t>(dim)] = x.builder().simplify(before);
  high[static_cast<size_t>(dim)] = x.builder().simplify(after);
  return pad(x, low, high, 0);
}

sym::Expr between(sym::Expr low, sym::Expr x, sym::Expr high) { return sym::max(low, sym::min(x, high)); }

// Element m of the result sums those of g that repeat with the period: g[before + m + k * period] for all k.
Term fold_period(Term g, int64_t dim, sym::Expr before, sym::Expr period) {
  Builder& b = g.builder();
  const sym::Expr each = b.simplify(sym::max(period, 1));
  const sym::Expr lead = b.simplify(sym::mod(-before, each));
  const sym::Expr rows = b.simplify(sym::ceildiv(lead + g.dim(dim), each));
  const Term whole = pad_dim(g, dim, lead, rows * each - lead - g.dim(dim));
  Shape apart = with_size(whole, dim, each);
  apart.insert(apart.begin() + dim, rows);
  const Term folded = reduce_sum(reshape(whole, apart), {dim});
  return pad_dim(folded, dim, 0, period - each);  // an empty dim has no elements
}

Term edge_gradient(Term g, int64_t dim, sym::Expr size, sym::Expr before, sym::Expr after) {
  Builder& b = g.builder();
  const sym::Expr out = g.dim(dim);
  const Term inside = pad_dim(g, dim, -before, -after);
  const auto sum_at = [&](sym::Expr start, sym::Expr extent, bool first) {
    const Term sum = reduce_sum(slice(g, dim, b.simplify(start), b.simplify(extent)), {dim}, kKeep);
    return pad_dim(sum, dim, first ? sym::Expr(0) : size - 1, first ? size - 1 : sym::Expr(0));
  };
  const sym::Expr low = between(0, before, out), high = between(0, size + before, out);
  return inside + sum_at(0, low, true) + sum_at(high, out - high, false);
}

// Positions 1 .. size - 2 occur twice in a period of 2 (size - 1), the second time from the end.
Term reflect_gradient(Term g, int64_t dim, sym::Expr size, sym::Expr before) {
  Builder& b = g.builder();
  const sym::Expr period = b.simplify(sym::max(2 * (size - 1), 1)), rest = b.simplify(period - size);
  const Term folded = fold_period(g, dim, before, period);
  const Term mirrored = flip(pad_dim(folded, dim, -size, 0), {dim});
  return pad_dim(folded, dim, 0, -rest) + pad_dim(mirrored, dim, 1, size - 1 - rest);
}

Ids pad_gradient(Builder& b, const Node& node, const Ids& outputs) {
  Term g(b, outputs[0]);
  Shape before = node.attributes.exprs("before"), after = node.attributes.exprs("after");
  const std::string mode = node.attributes.text_or("mode", "constant");
  const Shape& from = b.shape(node.inputs[0]);
  if (mode != "constant") {
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].is_const(0) && after[i].is_const(0)) continue;
      const int64_t dim = static_cast<int64_t>(i);
      const bool turns = mode == "wrap" && b.simplify(before[i] + after[i]).is_const(0);
      if (turns) {
        Shape low(before.size(), 0), high = low;
        low[i] = -before[i], high[i] = -after[i];
        g = {b, b.add1(OpKind::kPad, {g}, {{"before", low}, {"after", high}, {"mode", mode}})};
      } else if (mode == "wrap") {
        g = fold_period(g, dim, before[i], from[i]);
      } else if (mode == "edge") {
        g = edge_gradient(g, dim, from[i], before[i], after[i]);
      } else {
        g = reflect_gradient(g, dim, from[i], before[i]);
      }
    }
    return {reshape(g, from)};
  }
  for (size_t i = 0; i < before.size(); ++i) {
    before[i] = -before[i];
    after[i] = -after[i];
  }
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

}  // namespace

const OpDef def_kPad{
    pad_shape, pad_lower,
    Gradient::by(pad_gradient,
                 "x: pad(g) by the negative sizes, plus what repeats an element; value: the rest",
                 "edge, reflect and wrap sum all places that an element is copied to")};

}  // namespace stridec::ops
