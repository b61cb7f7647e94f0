#include "compiler/ops/composite/attention.h"

#include <cmath>
#include <limits>

#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

// Repeats each of the `shared` heads of t for the heads that share it.
Term repeat_heads(Term t, sym::Expr heads, sym::Expr shared) {
  if (heads == shared) return t;
  const sym::Expr group = divided(t.builder(), heads, shared, "heads");
  const Term each = expand(unsqueeze(t, {2}), {t.dim(0), shared, group, t.dim(2), t.dim(3)});
  return reshape(each, {t.dim(0), heads, t.dim(2), t.dim(3)});
}

}  // namespace

Attention attend(Term q, Term k, Term v, const AttentionOptions& options) {
  Builder& b = q.builder();
  const DType narrow = q.dtype(), wide = compute_dtype(narrow);
  const sym::Expr heads = q.dim(1), shared = k.dim(1);
  const sym::Expr width = sym::max(q.dim(3), 1);  // without any, all scores are 0
  const auto size = sym::as_const(width);
  const Term factor = options.scale != 0 ? number(b, wide, options.scale)
                      : size             ? number(b, wide, 1 / std::sqrt(static_cast<double>(*size)))
                                         : rsqrt(size_as(b, wide, width));
  Term scores = matmul(q, transpose(repeat_heads(k, heads, shared), 2, 3), wide) * factor;
  if (options.softcap > 0) scores = tanh(scores / options.softcap) * options.softcap;
  if (options.bias)
    scores = scores + unidirectional(cast(*options.bias, wide), scores.shape(), "the attention bias");
  if (options.allowed)
    scores = select(*options.allowed, scores, number_like(scores, -std::numeric_limits<double>::infinity()));
  const Dims last{3};
  Term top = stop_gradient(reduce_max(scores, last, kKeep));
  std::optional<Term> sink;
  if (options.sink) {
    sink =
        options.sink_score ? reshape(cast(*options.sink_score, wide), {1, heads, 1, 1}) : number(b, wide, 0);
    top = maximum(top, stop_gradient(*sink));
  }
  const Term raised = exp(scores - top);
  Term total = reduce_sum(raised, last, kKeep);
  if (sink) total = total + exp(*sink - top);
  Term weights = raised / total;
  if (!sink) weights = as_softmax(scores, weights, last);  // a sink has a gradient, too
  weights = cast(weights, narrow);
  const Term value = cast(matmul(weights, repeat_heads(v, heads, shared), wide), narrow);
  return {value, cast(scores, narrow)};
}

Term causal_mask(Builder& b, sym::Expr queries, sym::Expr keys, sym::Expr past) {
  const Term s = positions_along(b, queries, 2, 4) + size_as(b, DType::kI64, past),
             t = positions_along(b, keys, 3, 4);
  return less_equal(t, s);
}

Term mask_bias(Term mask, sym::Expr batch, sym::Expr queries, sym::Expr keys, double filter) {
  Builder& b = mask.builder();
  const Term m = cast(mask, DType::kI64), t = positions_along(b, keys, 3, 4);
  const auto filtered = [&](Term kept) {
    return select(kept, number(b, DType::kF32, 0), number(b, DType::kF32, filter));
  };
  if (m.rank() == 1) {
    const auto bound = [&](sym::Expr from) { return reshape(slice(m, 0, from, batch), {batch, 1, 1, 1}); };
    const sym::Expr once = sym::eq(m.dim(0), batch), twice = sym::eq(m.dim(0), batch * 2);
    b.require(sym::logical_or(once, twice), "a mask of one dim has {0} numbers for a batch of {1}",
              {m.dim(0), batch});
    if (b.holds(once)) return filtered(less(t, bound(0)));
    if (b.holds(twice)) return filtered(logical_and(less(t, bound(0)), greater_equal(t, bound(batch))));
    // The form is known only at run time: without start positions, every key counts as after the start.
    const Term start = bound(b.simplify(sym::select(twice, batch, 0)));
    const Term without = equal(size_as(b, DType::kI64, sym::select(twice, 1, 0)), 0);
    return filtered(logical_and(less(t, bound(0)), logical_or(without, greater_equal(t, start))));
  }
  if (m.rank() == 2) return filtered(greater(reshape(m, {batch, 1, 1, keys}), 0));
  if (m.rank() == 3) return filtered(greater(reshape(m, {batch, 1, queries, keys}), 0));
  const Term rows = slice(slice(m, 2, keys - queries, queries), 3, 0, keys);
  return filtered(greater(rows, 0));
}

}  // namespace stridec::ops
