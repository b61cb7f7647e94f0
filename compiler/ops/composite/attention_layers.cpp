#include "compiler/ops/composite/attention_layers.h"

#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

Term split_heads(Term x, sym::Expr heads) {
  const sym::Expr size = divided(x.builder(), x.dim(2), heads, "columns");
  return transpose(reshape(x, {x.dim(0), x.dim(1), heads, size}), 1, 2);
}

Term split_biased(Term x, sym::Expr heads, std::optional<Term> bias, sym::Expr from) {
  return split_heads(bias ? x + slice(*bias, 0, from, x.dim(2)) : x, heads);
}

Term biased_heads(Term x, sym::Expr heads, Term bias, sym::Expr from) {
  return x + reshape(slice(bias, 0, from, x.dim(3) * heads), {heads, 1, x.dim(3)});
}

Term join_heads(Term x) {
  const Term rows = transpose(x, 1, 2);
  return reshape(rows, {rows.dim(0), rows.dim(1), rows.dim(2) * rows.dim(3)});
}

Term unpack_heads(Term packed, int64_t i) { return transpose(squeeze(slice(packed, 3, i, 1), {3}), 1, 2); }

namespace {

std::optional<Term> sum_of(const ScoreBias& given, Term q, Term k) {
  std::optional<Term> mask;
  if (given.mask) mask = mask_bias(*given.mask, q.dim(0), q.dim(2), k.dim(2), given.filter);
  if (mask && given.bias) return *mask + cast(*given.bias, mask->dtype());
  return mask ? mask : given.bias;
}

// Pads rows [batch, heads, rows, size] with zeros to at least `total` rows.
Term with_room(Term rows, sym::Expr total) {
  const sym::Expr more = rows.builder().simplify(sym::max(total - rows.dim(2), 0));
  return more.is_const(0) ? rows : pad(rows, {0, 0, 0, 0}, {0, 0, more, 0}, 0);
}

}  // namespace

SelfAttention self_attention(Term projected, std::optional<Term> past, const ScoreBias& bias,
                             const SelfAttentionOptions& options) {
  Builder& b = projected.builder();
  const sym::Expr third = b.simplify(sym::floordiv(projected.dim(2), 3));
  const auto [nq, nk, nv] = options.sizes.value_or(std::array{third, third, third});
  const Term q = split_heads(slice(projected, 2, 0, nq), options.heads);
  Term k = split_heads(slice(projected, 2, nq, nk), options.heads),
       v = split_heads(slice(projected, 2, nq + nk, nv), options.heads);
  sym::Expr used = 0;
  if (past) {
    used = past->dim(3);
    k = concat({squeeze(slice(*past, 0, 0, 1), {0}), k}, 2);
    v = concat({squeeze(slice(*past, 0, 1, 1), {0}), v}, 2);
  }
  AttentionOptions core{.scale = options.scale};
  core.bias = sum_of(bias, q, k);
  if (options.causal) core.allowed = causal_mask(b, q.dim(2), k.dim(2), used);
  const Term value = join_heads(attend(q, k, v, core).value);
  return {value, k, v};
}

KeyValueResult cached_attention(Term q, Term k, Term v, const std::optional<KeyValuePast>& past,
                                const ScoreBias& bias, double scale, bool causal) {
  Builder& b = q.builder();
  sym::Expr used = 0;
  Term all_k = k, all_v = v;
  if (past && past->used) {
    used = *past->used;
    const sym::Expr total = b.simplify(used + k.dim(2)), room = past->k.dim(2);
    b.require(sym::le(total, room), "{0} keys do not fit into a past of {1}", {total, room});
    const auto written = [&](Term buffer, Term rows) {
      const Term at = positions_along(b, rows.dim(2), 2, 4) + size_as(b, DType::kI64, used);
      return scatter_elements(buffer, expand(at, rows.shape()), rows, 2);
    };
    all_k = written(past->k, k), all_v = written(past->v, v);
    k = slice(all_k, 2, 0, total), v = slice(all_v, 2, 0, total);
  } else if (past) {
    used = past->k.dim(2);
    k = all_k = concat({past->k, k}, 2);
    v = all_v = concat({past->v, v}, 2);
  }
  AttentionOptions core{.scale = scale};
  core.bias = sum_of(bias, q, k);
  if (causal) core.allowed = causal_mask(b, q.dim(2), k.dim(2), used);
  const Attention a = attend(q, k, v, core);
  return {join_heads(a.value), all_k, all_v, a.scores};
}

Term lengths_to(Term last, sym::Expr batch) { return reshape(cast(last, DType::kI64), {batch, 1}) + 1.0; }

KeyValueResult group_query_attention(Term q, Term k, Term v, Term lengths, std::optional<Term> past_k,
                                     std::optional<Term> past_v, const GroupQueryOptions& options) {
  Builder& b = q.builder();
  const sym::Expr batch = q.dim(0), queries = q.dim(2), total = options.total;
  const Term prompt = size_as(b, DType::kI64, b.simplify(sym::select(sym::eq(queries, total), 0, 1)));
  const Term past =
      (lengths - size_as(b, DType::kI64, queries)) * prompt;   // number of cached rows of each batch row
  const Term step = past + positions_along(b, queries, 1, 2);  // [batch, queries]
  if (options.rotary) {
    const auto& [cosine, sine, position, rotation] = *options.rotary;
    const Term at = position ? *position : step;
    q = rotate(q, at, cosine, sine, rotation);
    k = rotate(k, at, cosine, sine, rotation);
  }
  const auto present = [&](const std::optional<Term>& old, Term fresh) {
    if (!old || old->dim(2).is_const(0)) return with_room(fresh, total);  // the cache is empty
    const Term room = with_room(*old, total);
    return scatter_elements(room, expand(reshape(step, {batch, 1, queries, 1}), fresh.shape()), fresh, 2);
  };
  const Term all_k = present(past_k, k), all_v = present(past_v, v);
  // A cache of fixed size may be longer than the total; the rest is ignored.
  const auto used = [&](Term t) { return t.dim(2) == total ? t : slice(t, 2, 0, total); };
  // Key position minus query index. Comparing it with `first` needs only one value per batch row.
  const Term ahead = positions_along(b, total, 3, 4) - positions_along(b, queries, 2, 4);
  const Term first = reshape(past, {batch, 1, 1, 1});
  AttentionOptions core{.scale = options.scale,
                        .softcap = options.softcap,
                        .bias = options.bias,
                        .sink = options.sink,
                        .sink_score = options.sink_score};
  core.allowed = less_equal(ahead, first);
  if (options.window > 0)
    core.allowed = logical_and(*core.allowed, greater(ahead, first - static_cast<double>(options.window)));
  const Term keys = used(all_k), values = used(all_v);
  const Attention a = attend(q, keys, values, core);
  return {join_heads(a.value), all_k, all_v, a.scores};
}

}  // namespace stridec::ops
