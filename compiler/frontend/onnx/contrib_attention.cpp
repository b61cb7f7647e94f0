// The attention operators of onnxruntime's com.microsoft domain: rotary embeddings, Attention, QAttention,
// MultiHeadAttention, GroupQueryAttention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/constant_tables.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/contraction.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";

sym::Expr divided(const Context& c, sym::Expr size, sym::Expr by, const char* what) {
  const sym::Expr part = c.b.simplify(sym::floordiv(size, by));
  c.b.require(sym::eq(part * by, size), cat("{0} ", what, " do not divide into {1}"), {size, by});
  return part;
}

// [batch, sequence, heads * size] to [batch, heads, sequence, size].
Term split_heads(const Context& c, Term x, sym::Expr heads) {
  return transpose(reshape(x, {x.dim(0), x.dim(1), heads, divided(c, x.dim(2), heads, "columns")}), 1, 2);
}
Term join_heads(Term x) {
  const Term rows = transpose(x, 1, 2);
  return reshape(rows, {rows.dim(0), rows.dim(1), rows.dim(2) * rows.dim(3)});
}

Term positions_along(Builder& b, sym::Expr size, int64_t dim, int64_t rank) {
  Shape shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(dim)] = size;
  return index_along(b, shape, dim, DType::kI64);
}

// ---- rotary embedding ------------------------------------------------------------------------------------

// x [batch, heads, sequence, size]; position [batch or 1, sequence]; caches [positions, half]. Rotates the
// first 2 * half elements of each head. The elements of a pair are adjacent (interleaved) or `half` apart.
Term rotate_by(Term x, Term cosine, Term sine, bool interleaved, double scale);
Term rotate(Term x, Term position, Term cosine, Term sine, bool interleaved, double scale = 1) {
  return rotate_by(x, gather(cosine, position, 0), gather(sine, position, 0), interleaved, scale);
}
// The same, given the selected rows of the caches: [batch or 1, sequence, half].
Term rotate_by(Term x, Term cosine, Term sine, bool interleaved, double scale) {
  const sym::Expr half = cosine.dim(2), rest = x.dim(3) - half * 2;
  const auto angles = [&](Term rows) {
    const Term t = unsqueeze(rows, {1});
    return widen(scale == 1 ? t : t * scale);
  };
  const Term cos = angles(cosine), sin = angles(sine), w = widen(x);
  const auto turned = [&](Term a, Term b) { return std::pair(a * cos - b * sin, a * sin + b * cos); };
  std::vector<Term> parts;
  if (interleaved) {
    const Term pairs = reshape(slice(w, 3, 0, half * 2), {x.dim(0), x.dim(1), x.dim(2), half, 2});
    const auto [a, b] = turned(squeeze(slice(pairs, 4, 0, 1), {4}), squeeze(slice(pairs, 4, 1, 1), {4}));
    parts.push_back(
        reshape(concat({unsqueeze(a, {4}), unsqueeze(b, {4})}, 4), {x.dim(0), x.dim(1), x.dim(2), half * 2}));
  } else {
    const auto [a, b] = turned(slice(w, 3, 0, half), slice(w, 3, half, half));
    parts = {a, b};
  }
  if (!rest.is_const(0)) parts.push_back(slice(w, 3, half * 2, rest));
  return cast(parts.size() == 1 ? parts[0] : concat(parts, 3), x.dtype());
}

// Splits x into heads, applies `turn` to them, and restores the layout of x.
template <class Turn>
Outputs turned_heads(Context& c, const Turn& turn) {
  const Term x = c.in(0), cosine = c.in(2);
  if (c.integer("is_packed_batching", 0)) c.unsupported(c.node.op_type + " of packed batches");
  const bool split = x.rank() == 4;
  sym::Expr heads = c.integer("num_heads", 0);
  if (!split && heads.is_const(0)) {
    if (c.integer("rotary_embedding_dim", 0)) c.does_not_fit("rotary_embedding_dim needs num_heads");
    heads = divided(c, x.dim(2), cosine.dim(1) * 2, "columns");
  }
  const Term y = turn(split ? x : split_heads(c, x, heads));
  return {split ? y : join_heads(y)};
}

Outputs rotary_embedding(Context& c) {
  return turned_heads(c, [&](Term heads) {
    Term position = cast(c.in(1), DType::kI64);
    if (position.rank() == 1) {  // one value: the first position of every batch row
      c.b.require(sym::eq(position.dim(0), 1), "position_ids of one dim has {0} numbers, not 1",
                  {position.dim(0)});
      position = unsqueeze(position, {0}) + positions_along(c.b, heads.dim(2), 1, 2);
    }
    return rotate(heads, position, c.in(2), c.in(3), c.integer("interleaved", 0) != 0, c.number("scale", 1));
  });
}

// Three positions [3, batch, sequence]: time, height and width. Each column of the caches uses one of them.
Outputs multimodal_rotary_embedding(Context& c) {
  const Dims section = c.integers("mrope_section");
  if (section.size() != 3 || std::any_of(section.begin(), section.end(), [](int64_t n) { return n < 0; }))
    c.does_not_fit("mrope_section has three sizes");
  const int64_t half = section[0] + section[1] + section[2];
  c.b.require(sym::eq(c.in(2).dim(1), half), "mrope_section has {1} columns in all, the caches {0}",
              {c.in(2).dim(1), half});
  // For each column, the index of the position that it uses.
  std::vector<double> stream(static_cast<size_t>(half), 0);
  for (int64_t i = 0; i < half; ++i) {
    double& of = stream[static_cast<size_t>(i)];
    if (c.integer("mrope_layout", 0) == 0)
      of = i < section[0] ? 0 : i < section[0] + section[1] ? 1 : 2;
    else if (i % 3 != 0 && i < 3 * section[static_cast<size_t>(i % 3)])
      of = static_cast<double>(i % 3);
  }
  const Term which = cast(float_table(c.b, stream, DType::kF32), DType::kI64);
  const Term position = cast(c.in(1), DType::kI64);
  const auto rows = [&](Term cache) {
    const auto read = [&](int64_t i) { return gather(cache, squeeze(slice(position, 0, i, 1), {0}), 0); };
    return select(equal(which, 0), read(0), select(equal(which, 1), read(1), read(2)));
  };
  return turned_heads(c, [&](Term heads) {
    return rotate_by(heads, rows(c.in(2)), rows(c.in(3)), c.integer("interleaved", 0) != 0,
                     c.number("scale", 1));
  });
}

// ---- the core --------------------------------------------------------------------------------------------

struct Core {
  double scale = 0;             // 0: 1 / sqrt(size)
  double softcap = 0;           // 0: none
  std::optional<Term> bias;     // added to the scores [batch, heads, queries, keys], broadcast
  std::optional<Term> allowed;  // bool, likewise: false is minus infinity
  bool sink = false;            // one extra score without a value: `sink_score` per head, or 0
  std::optional<Term> sink_score;
};
// q [batch, heads, queries, size]; k and v [batch, key heads, keys, size]; groups of heads share keys. Scores
// and weights are computed in f32 or wider. GEMMs take narrow floats unconverted, including the weights, as
// in ONNX's Attention.
struct Attended {
  Term value, scores;
};
Attended attend(const Context& c, Term q, Term k, Term v, const Core& core) {
  const DType narrow = q.dtype();
  const sym::Expr heads = q.dim(1), shared = k.dim(1);
  const auto of_all = [&](Term t) {
    if (heads == shared) return t;
    const sym::Expr group = divided(c, heads, shared, "heads");
    const Term each = expand(unsqueeze(t, {2}), {t.dim(0), shared, group, t.dim(2), t.dim(3)});
    return reshape(each, {t.dim(0), heads, t.dim(2), t.dim(3)});
  };
  const DType wide = ops::compute_dtype(narrow);
  const auto size = sym::as_const(q.dim(3));
  const Term factor = core.scale != 0 ? c.number(wide, core.scale)
                      : size          ? c.number(wide, 1 / std::sqrt(static_cast<double>(*size)))
                                      : rsqrt(size_as(c.b, wide, q.dim(3)));
  Term scores = matmul(q, transpose(of_all(k), 2, 3), wide) * factor;
  if (core.softcap > 0) scores = tanh(scores / core.softcap) * core.softcap;
  if (core.bias)
    scores = scores + unidirectional(cast(*core.bias, wide), scores.shape(), "the attention bias");
  if (core.allowed)
    scores = select(*core.allowed, scores, number_like(scores, -std::numeric_limits<double>::infinity()));
  const Dims last{3};
  Term top = reduce_max(scores, last, kKeep);
  std::optional<Term> sink;
  if (core.sink) {
    sink = core.sink_score ? reshape(cast(*core.sink_score, wide), {1, heads, 1, 1}) : c.number(wide, 0);
    top = maximum(top, *sink);
  }
  const Term raised = exp(scores - top);
  Term total = reduce_sum(raised, last, kKeep);
  if (sink) total = total + exp(*sink - top);
  const Term weights = cast(raised / total, narrow);
  return {cast(matmul(weights, of_all(v), wide), narrow), cast(scores, narrow)};
}

// t <= s + past for query s and key t.
Term causal(Builder& b, sym::Expr queries, sym::Expr keys, sym::Expr past) {
  const Term s = positions_along(b, queries, 2, 4) + size_as(b, DType::kI64, past),
             t = positions_along(b, keys, 3, 4);
  return less_equal(t, s);
}

// The bias that a mask adds to the scores, for each of onnxruntime's mask formats; none without a mask.
std::optional<Term> mask_bias(const Context& c, std::optional<Term> mask, sym::Expr batch, sym::Expr queries,
                              sym::Expr keys, double filter) {
  if (!mask) return std::nullopt;
  const Term m = cast(*mask, DType::kI64), t = positions_along(c.b, keys, 3, 4);
  const auto filtered = [&](Term kept) {
    return select(kept, c.number(DType::kF32, 0), c.number(DType::kF32, filter));
  };
  if (m.rank() == 1) {  // number of valid keys; may be followed by their start positions
    const auto bound = [&](sym::Expr from) { return reshape(slice(m, 0, from, batch), {batch, 1, 1, 1}); };
    const sym::Expr once = sym::eq(m.dim(0), batch), twice = sym::eq(m.dim(0), batch * 2);
    c.b.require(sym::logical_or(once, twice), "a mask of one dim has {0} numbers for a batch of {1}",
                {m.dim(0), batch});
    if (c.b.holds(once)) return filtered(less(t, bound(0)));
    if (c.b.holds(twice)) return filtered(logical_and(less(t, bound(0)), greater_equal(t, bound(batch))));
    // The form is known only at run time: without start positions, every key counts as after the start.
    const Term start = bound(c.b.simplify(sym::select(twice, batch, 0)));
    const Term without = equal(size_as(c.b, DType::kI64, sym::select(twice, 1, 0)), 0);
    return filtered(logical_and(less(t, bound(0)), logical_or(without, greater_equal(t, start))));
  }
  if (m.rank() == 2) return filtered(greater(reshape(m, {batch, 1, 1, keys}), 0));
  if (m.rank() == 3) return filtered(greater(reshape(m, {batch, 1, queries, keys}), 0));
  // [batch, 1, most, most] of Megatron: use the rows and columns that end at this step
  const Term rows = slice(slice(m, 2, keys - queries, queries), 3, 0, keys);
  return filtered(greater(rows, 0));
}

std::optional<Term> plus(std::optional<Term> a, std::optional<Term> b) {
  if (a && b) return *a + cast(*b, a->dtype());
  return a ? a : b;
}

// ---- Attention -------------------------------------------------------------------------------------------

// Computes Attention from projected rows [batch, sequence, q | k | v].
Outputs attention(Context& c, Term projected, size_t mask_input, size_t past_input, size_t bias_input) {
  const int64_t heads = c.integer("num_heads");
  Dims sizes = c.integers("qkv_hidden_sizes");
  const sym::Expr third = c.b.simplify(sym::floordiv(projected.dim(2), 3));
  const sym::Expr nq = sizes.empty() ? third : sym::Expr(sizes.at(0)),
                  nk = sizes.empty() ? third : sizes.at(1), nv = sizes.empty() ? third : sizes.at(2);
  if (c.integer("do_rotary", 0)) c.unsupported("rotary embedding inside Attention");
  const Term q = split_heads(c, slice(projected, 2, 0, nq), heads);
  Term k = split_heads(c, slice(projected, 2, nq, nk), heads),
       v = split_heads(c, slice(projected, 2, nq + nk, nv), heads);
  sym::Expr past = 0;
  if (c.has(past_input)) {
    if (c.integer("past_present_share_buffer", 0))
      c.unsupported("Attention whose past and present share one buffer");
    const Term p = c.in(past_input);  // [2, batch, heads, past, size]
    past = p.dim(3);
    k = concat({squeeze(slice(p, 0, 0, 1), {0}), k}, 2);
    v = concat({squeeze(slice(p, 0, 1, 1), {0}), v}, 2);
  }
  Core core{.scale = c.number("scale", 0)};
  core.bias = plus(mask_bias(c, c.optional(mask_input), q.dim(0), q.dim(2), k.dim(2),
                             c.number("mask_filter_value", -10000)),
                   c.optional(bias_input));
  if (c.integer("unidirectional", 0)) core.allowed = causal(c.b, q.dim(2), k.dim(2), past);
  Outputs out{join_heads(attend(c, q, k, v, core).value)};
  if (c.wants(1)) out.push_back(concat({unsqueeze(k, {0}), unsqueeze(v, {0})}, 0));
  return out;
}

Outputs op_attention(Context& c) {
  Term projected = matmul(c.in(0), c.in(1));
  if (c.has(2)) projected = projected + c.in(2);
  return attention(c, projected, 3, 4, 5);
}

Outputs q_attention(Context& c) {
  const auto centered = [&](size_t x, size_t zero) {
    const Term wide = cast(c.in(x), DType::kI32);
    return c.has(zero) ? wide - cast(c.in(zero), DType::kI32) : wide;
  };
  const Term sums = cast(matmul(centered(0, 6), centered(1, 7)), DType::kF32);
  return attention(c, sums * (reshape(c.in(3), {}) * c.in(4)) + c.in(2), 5, 8, 9);
}

// ---- MultiHeadAttention ----------------------------------------------------------------------------------

Outputs multi_head_attention(Context& c) {
  const int64_t heads = c.integer("num_heads");
  const auto slot = [&](size_t i) { return c.optional(i); };
  Term q = c.in(0);
  std::optional<Term> k = slot(1), v = slot(2);
  if (c.has(9)) c.unsupported("MultiHeadAttention with cache_indirection");
  if (q.rank() == 5) {  // [batch, sequence, heads, 3, size]
    const Term packed = q;
    const auto part = [&](int64_t i) { return transpose(squeeze(slice(packed, 3, i, 1), {3}), 1, 2); };
    q = part(0), k = part(1), v = part(2);
  } else {
    if (!k) c.does_not_fit("the key is missing");
    const bool packed = k->rank() == 5;
    std::optional<Term> bias = slot(3);
    sym::Expr used = 0;
    const auto biased = [&](Term x) {
      if (!bias) return x;
      const sym::Expr n = x.dim(2);
      const Term y = x + slice(*bias, 0, used, n);
      used += n;
      return y;
    };
    q = split_heads(c, biased(q), heads);
    if (packed) {  // [batch, sequence, heads, 2, size]
      if (bias) c.unsupported("MultiHeadAttention with a bias for packed keys");
      const Term both = *k;
      k = transpose(squeeze(slice(both, 3, 0, 1), {3}), 1, 2);
      v = transpose(squeeze(slice(both, 3, 1, 1), {3}), 1, 2);
    } else if (k->rank() == 3) {
      if (!v) c.does_not_fit("the value is missing");
      k = split_heads(c, biased(*k), heads);
      v = split_heads(c, biased(*v), heads);
    } else {  // keys and values of cross-attention are already split into heads
      if (!v) c.does_not_fit("the value is missing");
      if (bias) {
        used = q.dim(3) * heads + k->dim(3) * heads;
        const Term of_v = slice(*bias, 0, used, v->dim(3) * heads);
        const Term of_k = slice(*bias, 0, q.dim(3) * heads, k->dim(3) * heads);
        k = *k + reshape(of_k, {heads, 1, k->dim(3)});
        v = *v + reshape(of_v, {heads, 1, v->dim(3)});
      }
    }
  }
  sym::Expr past = 0;
  if (c.has(6) != c.has(7)) c.does_not_fit("a past of keys comes with one of values");
  Term all_k = *k, all_v = *v;  // the present keys and values
  if (c.has(6) && c.has(8)) {
    // Past and present are buffers of equal size; the first past_sequence_length rows are valid.
    past = c.size_of(8, "past_sequence_length", 0, kLargestSize);
    const sym::Expr total = c.b.simplify(past + k->dim(2));
    c.b.require(sym::le(total, c.in(6).dim(2)), "{0} keys do not fit into a past of {1}",
                {total, c.in(6).dim(2)});
    const auto written = [&](Term room, Term rows) {
      const Term at = positions_along(c.b, rows.dim(2), 2, 4) + size_as(c.b, DType::kI64, past);
      return Term(c.b,
                  c.b.add1(OpKind::kScatterElements, {room.id(), expand(at, rows.shape()).id(), rows.id()},
                           {{"dim", int64_t{2}}, {"reduction", std::string("none")}}));
    };
    all_k = written(c.in(6), *k), all_v = written(c.in(7), *v);
    k = slice(all_k, 2, 0, total), v = slice(all_v, 2, 0, total);
  } else if (c.has(6)) {
    past = c.in(6).dim(2);
    k = all_k = concat({c.in(6), *k}, 2);
    v = all_v = concat({c.in(7), *v}, 2);
  }
  Core core{.scale = c.number("scale", 0)};
  core.bias = plus(
      mask_bias(c, slot(4), q.dim(0), q.dim(2), k->dim(2), c.number("mask_filter_value", -10000)), slot(5));
  if (c.integer("unidirectional", 0)) core.allowed = causal(c.b, q.dim(2), k->dim(2), past);
  const Attended a = attend(c, q, *k, *v, core);
  return {join_heads(a.value), all_k, all_v, a.scores};
}

// MultiHeadAttention of one query, with the inputs in a different order.
Outputs decoder_attention(Context& c) {
  if (c.has(8) || c.has(9)) c.unsupported(c.node.op_type + " of several beams");
  Node node = c.node;
  node.op_type = "MultiHeadAttention";
  node.inputs.clear();
  std::vector<Slot> inputs;
  for (size_t i : {0, 1, 2, 10, 3, 4, 5, 6, 7}) {
    node.inputs.push_back(c.has(i) ? c.node.inputs[i] : "");
    inputs.push_back(c.has(i) ? c.slot(i) : Slot());
  }
  return c.importer().import_as(c, std::move(node), std::move(inputs));
}

// ---- GroupQueryAttention ---------------------------------------------------------------------------------

// After this step a batch row's cache holds seqlens_k + 1 rows; the new rows are the last ones. If the
// queries are the whole sequence, all rows start empty (a prompt, padded at its end).
Outputs group_query_attention(Context& c) {
  Builder& b = c.b;
  const int64_t heads = c.integer("num_heads"), shared = c.integer("kv_num_heads");
  Term q = c.in(0);
  std::optional<Term> k = c.optional(1), v = c.optional(2);
  for (size_t i : {12, 13})
    if (c.has(i)) c.unsupported("GroupQueryAttention with a quantised cache");
  if (!k) {
    const sym::Expr size = divided(c, q.dim(2), heads + 2 * shared, "columns");
    const Term packed = q;
    q = slice(packed, 2, 0, size * heads);
    k = slice(packed, 2, size * heads, size * shared);
    v = slice(packed, 2, size * (heads + shared), size * shared);
  }
  if (!v) c.does_not_fit("the value is missing");
  q = split_heads(c, q, heads);
  Term new_k = split_heads(c, *k, shared), new_v = split_heads(c, *v, shared);
  const sym::Expr batch = q.dim(0), queries = q.dim(2);
  const sym::Expr total = c.size_of(6, "total_sequence_length", 0, kLargestSize);
  const Term lengths = reshape(cast(c.in(5), DType::kI64), {batch, 1}) + 1.0;
  const Term prompt = size_as(b, DType::kI64, b.simplify(sym::select(sym::eq(queries, total), 0, 1)));
  const Term past =
      (lengths - size_as(b, DType::kI64, queries)) * prompt;   // number of cached rows of each batch row
  const Term step = past + positions_along(b, queries, 1, 2);  // [batch, queries]
  if (c.integer("do_rotary", 0)) {
    const bool interleaved = c.integer("rotary_interleaved", 0) != 0;
    const Term at = c.has(9) ? cast(c.in(9), DType::kI64) : step;
    q = rotate(q, at, c.in(7), c.in(8), interleaved);
    new_k = rotate(new_k, at, c.in(7), c.in(8), interleaved);
  }
  const auto present = [&](size_t input, Term fresh) {
    if (!c.has(input) || c.in(input).dim(2).is_const(0)) {
      // The cache is empty: it becomes the new rows, padded to the total.
      const sym::Expr more = b.simplify(sym::max(total - queries, 0));
      return more.is_const(0) ? fresh : pad(fresh, {0, 0, 0, 0}, {0, 0, more, 0}, 0);
    }
    const Term old = c.in(input);
    const sym::Expr more = b.simplify(sym::max(total - old.dim(2), 0));
    const Term room = more.is_const(0) ? old : pad(old, {0, 0, 0, 0}, {0, 0, more, 0}, 0);
    const Term rows = expand(reshape(step, {batch, 1, queries, 1}), fresh.shape());
    return Term(b, b.add1(OpKind::kScatterElements, {room.id(), rows.id(), fresh.id()},
                          {{"dim", int64_t{2}}, {"reduction", std::string("none")}}));
  };
  const Term all_k = present(3, new_k), all_v = present(4, new_v);
  // A cache of fixed size may be longer than the total; the rest is ignored.
  const auto used = [&](Term t) { return t.dim(2) == total ? t : slice(t, 2, 0, total); };
  // Key position minus query index. Comparing it with `first` needs only one value per batch row.
  const Term ahead = positions_along(b, total, 3, 4) - positions_along(b, queries, 2, 4);
  const Term first = reshape(past, {batch, 1, 1, 1});
  Core core{.scale = c.number("scale", 0), .softcap = c.number("softcap", 0)};
  core.allowed = less_equal(ahead, first);
  if (const int64_t window = c.integer("local_window_size", -1); window > 0)
    core.allowed = logical_and(*core.allowed, greater(ahead, first - static_cast<double>(window)));
  if (c.has(10)) core.bias = c.in(10);
  core.sink = c.integer("smooth_softmax", 0) > 0 || c.has(11);
  core.sink_score = c.optional(11);
  const Attended a = attend(c, q, used(all_k), used(all_v), core);
  return {join_heads(a.value), all_k, all_v};
}

constexpr Row kRows[] = {
    {"Attention", op_attention, 1, kAnyLater, kMicrosoft},
    {"DecoderMaskedMultiHeadAttention", decoder_attention, 1, kAnyLater, kMicrosoft},
    {"GroupQueryAttention", group_query_attention, 1, kAnyLater, kMicrosoft},
    {"MRotaryEmbedding", multimodal_rotary_embedding, 1, kAnyLater, kMicrosoft},
    {"MultiHeadAttention", multi_head_attention, 1, kAnyLater, kMicrosoft},
    {"QAttention", q_attention, 1, kAnyLater, kMicrosoft},
    {"RotaryEmbedding", rotary_embedding, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_attention_rows() { return kRows; }

}  // namespace stridec::onnx
