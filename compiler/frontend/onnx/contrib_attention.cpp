// The attention operators of onnxruntime's com.microsoft domain: rotary embeddings, Attention, QAttention,
// MultiHeadAttention, GroupQueryAttention.
#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/attention_layers.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/quantization.h"
#include "compiler/ops/composite/rotary.h"
#include "compiler/ops/shapes.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr const char* kMicrosoft = "com.microsoft";

// ---- rotary embedding ------------------------------------------------------------------------------------

RotaryOptions rotary_options(const Context& c) {
  return {.interleaved = c.integer("interleaved", 0) != 0, .scale = c.number("scale", 1)};
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
    heads = divided(c.b, x.dim(2), cosine.dim(1) * 2, "columns");
  }
  const Term y = turn(split ? x : split_heads(x, heads));
  return {split ? y : join_heads(y)};
}

Outputs rotary_embedding(Context& c) {
  return turned_heads(c, [&](Term x) {
    Term position = cast(c.in(1), DType::kI64);
    // One value: the first position of every batch row.
    if (position.rank() == 1) position = consecutive_positions(position, x.dim(2));
    return rotate(x, position, c.in(2), c.in(3), rotary_options(c));
  });
}

Outputs multimodal_rotary_embedding(Context& c) {
  const Dims given = c.integers("mrope_section");
  if (given.size() != 3 || std::any_of(given.begin(), given.end(), [](int64_t n) { return n < 0; }))
    c.does_not_fit("mrope_section has three sizes");
  const Sections sections{.sections = {given[0], given[1], given[2]},
                          .alternating = c.integer("mrope_layout", 0) != 0};
  const Term position = cast(c.in(1), DType::kI64);
  return turned_heads(c, [&](Term x) {
    const Term cosine = multimodal_rows(c.in(2), position, sections),
               sine = multimodal_rows(c.in(3), position, sections);
    return rotate_by(x, cosine, sine, rotary_options(c));
  });
}

// ---- Attention -------------------------------------------------------------------------------------------

ScoreBias score_bias(const Context& c, size_t mask, size_t bias) {
  return {
      .mask = c.optional(mask), .bias = c.optional(bias), .filter = c.number("mask_filter_value", -10000)};
}

// Attention of projected rows [batch, sequence, q | k | v].
Outputs attention(Context& c, Term projected, size_t mask_input, size_t past_input, size_t bias_input) {
  if (c.integer("do_rotary", 0)) c.unsupported("rotary embedding inside Attention");
  if (c.has(past_input) && c.integer("past_present_share_buffer", 0))
    c.unsupported("Attention whose past and present share one buffer");
  SelfAttentionOptions options{.heads = c.integer("num_heads"),
                               .sizes = {},
                               .scale = c.number("scale", 0),
                               .causal = c.integer("unidirectional", 0) != 0};
  if (const Dims sizes = c.integers("qkv_hidden_sizes"); !sizes.empty()) {
    if (sizes.size() != 3) c.does_not_fit("qkv_hidden_sizes has three sizes");
    options.sizes = {sizes[0], sizes[1], sizes[2]};
  }
  const SelfAttention a =
      self_attention(projected, c.optional(past_input), score_bias(c, mask_input, bias_input), options);
  if (!c.wants(1)) return {a.value};  // keys and values of different sizes cannot be stacked
  return {a.value, concat({unsqueeze(a.k, {0}), unsqueeze(a.v, {0})}, 0)};
}

Outputs op_attention(Context& c) { return attention(c, linear(c.in(0), c.in(1), c.optional(2)), 3, 4, 5); }

Outputs q_attention(Context& c) {
  const QuantizedOperand x{.value = c.in(0), .scale = reshape(c.in(3), {}), .zero = c.optional(6)},
      w{.value = c.in(1), .scale = c.in(4), .zero = c.optional(7)};
  return attention(c, quantized_matmul(x, w, c.in(2)), 5, 8, 9);
}

// ---- MultiHeadAttention ----------------------------------------------------------------------------------

// The heads of queries, keys and values, in any of the forms that MultiHeadAttention takes.
struct Heads {
  Term q, k, v;
};
Heads heads_of(const Context& c) {
  const int64_t heads = c.integer("num_heads");
  const Term q = c.in(0);
  if (q.rank() == 5) {  // [batch, sequence, heads, 3, size]
    const Term first = unpack_heads(q, 0), second = unpack_heads(q, 1);
    return {first, second, unpack_heads(q, 2)};
  }
  if (!c.has(1)) c.does_not_fit("the key is missing");
  const Term k = c.in(1);
  const std::optional<Term> bias = c.optional(3);  // one vector for the columns of q, k and v
  const bool packed = k.rank() == 5;
  if (packed && bias) c.unsupported("MultiHeadAttention with a bias for packed keys");
  if (!packed && !c.has(2)) c.does_not_fit("the value is missing");
  const sym::Expr nq = q.dim(2);
  const Term first = split_biased(q, heads, bias, 0);
  if (packed) {  // [batch, sequence, heads, 2, size]
    const Term second = unpack_heads(k, 0);
    return {first, second, unpack_heads(k, 1)};
  }
  const Term v = c.in(2);
  if (k.rank() == 3) {
    const Term second = split_biased(k, heads, bias, nq);
    return {first, second, split_biased(v, heads, bias, nq + k.dim(2))};
  }
  if (!bias) return {first, k, v};
  // Keys and values of cross-attention are already split into heads.
  const sym::Expr used = first.dim(3) * heads + k.dim(3) * heads;
  const Term second = biased_heads(k, heads, *bias, first.dim(3) * heads);
  return {first, second, biased_heads(v, heads, *bias, used)};
}

Outputs multi_head_attention(Context& c) {
  if (c.has(9)) c.unsupported("MultiHeadAttention with cache_indirection");
  const auto [q, k, v] = heads_of(c);
  if (c.has(6) != c.has(7)) c.does_not_fit("a past of keys comes with one of values");
  std::optional<KeyValuePast> past;
  if (c.has(6)) past = {.k = c.in(6), .v = c.in(7), .used = {}};
  if (past && c.has(8)) past->used = c.size_of(8, "past_sequence_length", 0, kLargestSize);
  const KeyValueResult a = cached_attention(q, k, v, past, score_bias(c, 4, 5), c.number("scale", 0),
                                            c.integer("unidirectional", 0) != 0);
  return {a.value, a.k, a.v, a.scores};
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

Outputs op_group_query_attention(Context& c) {
  const int64_t heads = c.integer("num_heads"), shared = c.integer("kv_num_heads");
  Term q = c.in(0);
  std::optional<Term> k = c.optional(1), v = c.optional(2);
  for (size_t i : {12, 13})
    if (c.has(i)) c.unsupported("GroupQueryAttention with a quantised cache");
  if (!k) {
    const sym::Expr size = divided(c.b, q.dim(2), heads + 2 * shared, "columns");
    const Term packed = q;
    q = slice(packed, 2, 0, size * heads);
    k = slice(packed, 2, size * heads, size * shared);
    v = slice(packed, 2, size * (heads + shared), size * shared);
  }
  if (!v) c.does_not_fit("the value is missing");
  q = split_heads(q, heads);
  k = split_heads(*k, shared);
  v = split_heads(*v, shared);
  GroupQueryOptions options{.total = c.size_of(6, "total_sequence_length", 0, kLargestSize),
                            .scale = c.number("scale", 0),
                            .softcap = c.number("softcap", 0),
                            .window = c.integer("local_window_size", -1),
                            .sink = c.integer("smooth_softmax", 0) > 0 || c.has(11),
                            .sink_score = c.optional(11),
                            .bias = c.optional(10),
                            .rotary = {}};
  const Term lengths = lengths_to(c.in(5), q.dim(0));
  if (c.integer("do_rotary", 0))
    options.rotary = {.cosine = c.in(7),
                      .sine = c.in(8),
                      .position = c.has(9) ? std::optional(cast(c.in(9), DType::kI64)) : std::nullopt,
                      .options = {.interleaved = c.integer("rotary_interleaved", 0) != 0}};
  const KeyValueResult a = group_query_attention(q, *k, *v, lengths, c.optional(3), c.optional(4), options);
  return {a.value, a.k, a.v};
}

constexpr Row kRows[] = {
    {"Attention", op_attention, 1, kAnyLater, kMicrosoft},
    {"DecoderMaskedMultiHeadAttention", decoder_attention, 1, kAnyLater, kMicrosoft},
    {"GroupQueryAttention", op_group_query_attention, 1, kAnyLater, kMicrosoft},
    {"MRotaryEmbedding", multimodal_rotary_embedding, 1, kAnyLater, kMicrosoft},
    {"MultiHeadAttention", multi_head_attention, 1, kAnyLater, kMicrosoft},
    {"QAttention", q_attention, 1, kAnyLater, kMicrosoft},
    {"RotaryEmbedding", rotary_embedding, 1, kAnyLater, kMicrosoft},
};

}  // namespace

std::span<const Row> contrib_attention_rows() { return kRows; }

}  // namespace stridec::onnx
