// Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762): scores, masks, weights.
// attention_layers.h has the layers around it: heads, key-value caches, rotary embeddings.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct AttentionOptions {
  double scale = 0;             // of the scores; 0: 1 / sqrt(size)
  double softcap = 0;           // scores become softcap * tanh(scores / softcap); 0: none
  std::optional<Term> bias;     // added to the scores [batch, heads, queries, keys], broadcast
  std::optional<Term> allowed;  // bool, likewise: false is minus infinity
  bool sink = false;            // one extra score without a value: `sink_score` per head, or 0
  std::optional<Term> sink_score;
};
struct Attention {
  Term value;   // [batch, heads, queries, value size]
  Term scores;  // [batch, heads, queries, keys], scaled, capped and masked
};
// q [batch, heads, queries, size]; k and v [batch, key heads, keys, size]. Groups of heads / key heads
// consecutive heads share a key head. Scores and weights are computed in f32 or wider. GEMMs take narrow
// floats unconverted, including the weights, as in ONNX's Attention. A row without an allowed key is NaN,
// unless there is a sink.
Attention attend(Term q, Term k, Term v, const AttentionOptions& options);

// Bool [1, 1, queries, keys]: query s sees the keys up to s + past.
Term causal_mask(Builder& b, sym::Expr queries, sym::Expr keys, sym::Expr past);

// The bias f32 that a mask of integers adds to the scores: `filter` where a key is masked, else 0. Forms:
//   [batch]: number of valid keys, [2 * batch]: ends, then starts of the valid keys
//   [batch, keys], [batch, queries, keys]: positive where valid
//   [batch, 1, most, most]: the rows and columns that end at this step (Megatron)
Term mask_bias(Term mask, sym::Expr batch, sym::Expr queries, sym::Expr keys, double filter);

}  // namespace stridec::ops
