// Attention layers: projections split into heads, key-value caches, masks and rotary embeddings around
// attend(). Rows are [batch, sequence, heads * size]; heads are [batch, heads, sequence, size].
#pragma once

#include <array>
#include <optional>

#include "compiler/ops/composite/attention.h"
#include "compiler/ops/composite/rotary.h"

namespace stridec::ops {

// Rows to heads, and back. A guard checks that the columns divide into heads.
Term split_heads(Term x, sym::Expr heads);
Term join_heads(Term x);
// The same, or heads, plus the elements of a bias vector from `from` on, one per column of the rows.
Term split_biased(Term x, sym::Expr heads, std::optional<Term> bias, sym::Expr from);
Term biased_heads(Term x, sym::Expr heads, Term bias, sym::Expr from);
// Part i of heads that are packed as [batch, sequence, heads, parts, size].
Term unpack_heads(Term packed, int64_t i);

// A mask of integers (mask_bias) and a bias, both added to the scores.
struct ScoreBias {
  std::optional<Term> mask, bias;
  double filter = -10000;  // bias of a masked key
};

struct SelfAttentionOptions {
  sym::Expr heads = 1;
  std::optional<std::array<sym::Expr, 3>> sizes;  // columns of q, k, v; none: a third each
  double scale = 0;                               // see AttentionOptions
  bool causal = false;
};
struct SelfAttention {
  Term value;  // rows
  Term k, v;   // heads: past and input
};
// Attention of projected rows [batch, sequence, q | k | v] to themselves and to a past of keys and values,
// [2, batch, heads, past, size].
SelfAttention self_attention(Term projected, std::optional<Term> past, const ScoreBias& bias,
                             const SelfAttentionOptions& options);

// Keys and values of earlier steps, [batch, heads, past, size]. With `used`, they are buffers of equal size
// as the present ones, of which the first `used` rows are valid.
struct KeyValuePast {
  Term k, v;
  std::optional<sym::Expr> used;
};
struct KeyValueResult {
  Term value;   // rows
  Term k, v;    // heads: past and present
  Term scores;  // see Attention
};
// Attention of heads q to k and v, which follow the past.
KeyValueResult cached_attention(Term q, Term k, Term v, const std::optional<KeyValuePast>& past,
                                const ScoreBias& bias, double scale, bool causal);

// Rotary embedding of queries and new keys inside grouped-query attention.
struct GroupRotary {
  Term cosine, sine;             // [positions, half]
  std::optional<Term> position;  // [batch, sequence]; none: the number of cached rows, and on
  RotaryOptions options;
};
struct GroupQueryOptions {
  sym::Expr total = 0;  // length of the longest sequence after this step
  double scale = 0, softcap = 0;
  int64_t window = -1;  // a query sees this many keys, itself included; -1: all
  bool sink = false;    // see AttentionOptions
  std::optional<Term> sink_score, bias;
  std::optional<GroupRotary> rotary;
};
// Lengths of `batch` sequences, i64 [batch, 1], from the positions of their last tokens.
Term lengths_to(Term last, sym::Expr batch);
// Attention with fewer key heads than heads (Ainslie et al. 2023, arXiv:2305.13245) and one causal sequence
// per batch row, of `lengths` tokens after this step (i64 [batch, 1]). The new rows of q, k and v are the
// last of them.
// If the queries are the whole sequence, all rows start empty (a prompt, padded at its end). A cache
// [batch, key heads, size of the cache, size] is extended if `total` rows do not fit.
KeyValueResult group_query_attention(Term q, Term k, Term v, Term lengths, std::optional<Term> past_k,
                                     std::optional<Term> past_v, const GroupQueryOptions& options);

}  // namespace stridec::ops
