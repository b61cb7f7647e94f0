// Attention.
#include <cmath>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"
#include "compiler/frontend/aten/promotion.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/reduction.h"

namespace stridec::aten {
namespace {

using namespace ops;

// Softmax over the last dim in which a row of minus infinities gives zeros, as PyTorch's _safe_softmax.
Term masked_softmax(Term scores) {
  const int64_t last = scores.rank() - 1;
  const Term top =
      maximum(stop_gradient(reduce_max(scores, {last}, kKeep)), std::numeric_limits<float>::lowest());
  const Term e = exp(scores - top);
  // A row with an element that is not masked has a sum of at least 1.
  const Term sum = maximum(reduce_sum(e, {last}, kKeep), std::numeric_limits<float>::min());
  return as_softmax(scores, e / sum, {last});
}

// Repeats each head of keys or values for the query heads that share it.
Term shared_heads(Builder& b, Term kv, sym::Expr heads) {
  const int64_t at = kv.rank() - 3;
  const sym::Expr own = kv.dim(at), times = b.simplify(sym::floordiv(heads, own));
  if (times.is_const(1)) return kv;
  b.require(sym::eq(own * times, heads), "attention: {0} query heads for {1} heads of keys", {heads, own});
  Shape wide = kv.shape(), out = kv.shape();
  wide.insert(wide.begin() + at + 1, times);
  out[static_cast<size_t>(at)] = heads;
  return reshape(expand(unsqueeze(kv, {at + 1}), wide), out);
}

Results scaled_dot_product_attention(Context& c) {
  const Term q = c.in("query");
  Term k = c.in("key"), v = c.in("value");
  if (c.names("dropout_p") && c.number("dropout_p") != 0)
    c.unsupported("attention with dropout", "export the module in eval mode: module.eval()");
  if (q.rank() < 2) c.does_not_fit("attention takes [..., sequence, width]");
  // The fused kernel takes fewer heads of keys than of queries without saying so.
  const bool fused = c.schema.name == "_scaled_dot_product_flash_attention_for_cpu";
  const bool fewer = fused && q.rank() == 4 && k.rank() == 4 && q.dim(1).is_const() && k.dim(1).is_const() &&
                     q.dim(1).value() != k.dim(1).value();
  if (fewer || (c.names("enable_gqa") && c.flag("enable_gqa"))) {
    k = shared_heads(c.b, k, q.dim(q.rank() - 3));
    v = shared_heads(c.b, v, q.dim(q.rank() - 3));
  }
  // Products of narrow floats are summed up in f32. The weights are narrow, too, as in PyTorch's fused
  // kernels.
  const DType wide = widen(q).dtype();
  const sym::Expr width = sym::max(q.dim(q.rank() - 1), 1);  // without any, all scores are 0
  Term scores = matmul(q, transpose(k, k.rank() - 2, k.rank() - 1), wide);
  if (c.has("scale")) {
    scores = scores * c.number("scale");
  } else if (width.is_const()) {
    scores = scores * (1 / std::sqrt(static_cast<double>(width.value())));
  } else {
    scores = scores * rsqrt(cast(size_as(c.b, DType::kI64, width), wide, false));
  }
  const double low = -std::numeric_limits<double>::infinity();
  const bool causal = c.names("is_causal") && c.flag("is_causal");
  if (causal) {
    const Shape grid{q.dim(q.rank() - 2), k.dim(k.rank() - 2)};
    const Term seen =
        less_equal(index_along(c.b, grid, 1, DType::kI64), index_along(c.b, grid, 0, DType::kI64));
    scores = select(seen, scores, number_like(scores, low));
  }
  const bool mask = c.names("attn_mask") && c.has("attn_mask");
  if (mask) {
    const Term m = c.in("attn_mask");
    scores = is_bool(m.dtype()) ? select(m, scores, number_like(scores, low))
                                : scores + cast(m, scores.dtype(), false);
  }
  const Term weights =
      cast(mask ? masked_softmax(scores) : softmax(scores, {scores.rank() - 1}), v.dtype(), false);
  const Term out = cast(matmul(weights, v, wide), q.dtype(), false);
  if (!fused) return {out, weights};
  return {out, log_sum_exp(scores, {scores.rank() - 1}, false)};
}

constexpr Row kRows[] = {
    {"_scaled_dot_product_attention_math", scaled_dot_product_attention},
    {"_scaled_dot_product_flash_attention_for_cpu", scaled_dot_product_attention},
    {"scaled_dot_product_attention", scaled_dot_product_attention},
};

}  // namespace

std::span<const Row> attention_rows() { return kRows; }

}  // namespace stridec::aten
