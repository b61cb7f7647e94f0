// The operators that nn.MultiheadAttention and nn.TransformerEncoderLayer call in inference.
#include <cmath>
#include <limits>

#include "compiler/frontend/aten/call.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/normalization.h"

namespace stridec::aten {
namespace {

using namespace ops;

Term linear(Term x, Term w, Term bias) { return matmul(x, transpose(w, 0, 1)) + bias; }

// Whether scores [batch, heads, query, key] are left out. A mask has the shape that its type says: 0 [query,
// key], 1 [batch, key], 2 that of the scores. Numbers are masks where they are not 0, as in PyTorch.
Term masked(Context& c, Term scores) {
  Term mask = c.in("mask");
  if (!is_bool(mask.dtype())) mask = logical_not(equal(mask, 0));
  const bool of_keys = c.has("mask_type") ? c.integer("mask_type") == 1 : false;
  if (mask.rank() == 2 && of_keys) mask = unsqueeze(mask, {1, 2});
  return select(mask, number_like(scores, -std::numeric_limits<double>::infinity()), scores);
}

struct Attended {
  Term value, weights;
};
Attended attend(Context& c, Term query, Term key, Term value, int64_t heads) {
  const Term w = c.in("qkv_weight"), bias = c.in("qkv_bias");
  const sym::Expr width = query.dim(2);
  const auto projected = [&](Term x, int64_t part) {
    const sym::Expr at = width * part;
    const Term y = linear(x, slice(w, 0, at, width), slice(bias, 0, at, width));
    const sym::Expr each = c.b.simplify(sym::floordiv(width, heads));
    return widen(permute(reshape(y, {y.dim(0), y.dim(1), heads, each}), {0, 2, 1, 3}));
  };
  const Term q = projected(query, 0), k = projected(key, 1), v = projected(value, 2);
  const sym::Expr each = q.dim(3);
  if (!each.is_const()) c.unsupported("attention heads of a width that is not known at compile time");
  Term scores = matmul(q * (1 / std::sqrt(static_cast<double>(each.value()))), transpose(k, 2, 3));
  if (c.has("mask")) scores = masked(c, scores);
  const Term weights = softmax(scores, {3});
  const Term mixed = cast(permute(matmul(weights, v), {0, 2, 1, 3}), query.dtype(), false);
  return {linear(reshape(mixed, query.shape()), c.in("proj_weight"), c.in("proj_bias")), weights};
}

Results multi_head_attention(Context& c) {
  const Term query = c.in("query");
  const Attended a = attend(c, query, c.in("key"), c.in("value"), c.integer("num_head"));
  if (!c.flag("need_weights")) return {a.value, Value()};
  const Term weights = c.flag("average_attn_weights") ? reduce_mean(a.weights, {1}) : a.weights;
  return {a.value, cast(weights, query.dtype(), false)};
}

Results encoder_layer(Context& c) {
  const Term src = c.in("src");
  const bool first = c.flag("norm_first");
  const auto normalized = [&](Term x, const char* scale, const char* bias) {
    return layer_norm(x, {x.rank() - 1}, c.in(scale), c.in(bias), c.number("eps")).value;
  };
  const auto feed_forward = [&](Term x) {
    const Term h = linear(x, c.in("ffn_weight_1"), c.in("ffn_bias_1"));
    const Term active = c.flag("use_gelu") ? gelu(widen(h), false, AtMinusInfinity::kNan) : relu(widen(h));
    return linear(cast(active, h.dtype(), false), c.in("ffn_weight_2"), c.in("ffn_bias_2"));
  };
  const auto norm_1 = [&](Term x) { return normalized(x, "norm_weight_1", "norm_bias_1"); };
  const auto norm_2 = [&](Term x) { return normalized(x, "norm_weight_2", "norm_bias_2"); };
  const Term inside = first ? norm_1(src) : src;
  Term x = src + attend(c, inside, inside, inside, c.integer("num_heads")).value;
  if (!first) x = norm_1(x);
  const Term out = x + feed_forward(first ? norm_2(x) : x);
  return {first ? out : norm_2(out)};
}

constexpr Row kRows[] = {
    {"_native_multi_head_attention", multi_head_attention},
    {"_transformer_encoder_layer_fwd", encoder_layer},
};

}  // namespace

std::span<const Row> transformer_rows() { return kRows; }

}  // namespace stridec::aten
