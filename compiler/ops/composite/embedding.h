// Embedding layers: sums of rows of tables, normalised.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

// A parameter of an embedding layer. With a scale and a zero point, both of one element, it is quantised.
struct EmbeddingParameter {
  Term value;
  std::optional<Term> scale, zero;
};
struct EmbeddingLayer {
  EmbeddingParameter words, positions;         // tables
  std::optional<EmbeddingParameter> segments;  // a table
  EmbeddingParameter scale, bias;              // of the normalisation
  double epsilon = 1e-12;
};
struct EmbeddingInputs {
  Term words;                     // [batch, sequence]
  std::optional<Term> positions;  // none: 0, 1, ...
  std::optional<Term> segments;   // none: the layer's segments are not added
};
struct Embedded {
  Term value;
  Term sum;  // before the normalisation
};
Embedded embed(const EmbeddingInputs& inputs, const EmbeddingLayer& layer);

// The number of ones in each row of an i32 mask [batch, sequence]; without a mask, zeros of `rows`.
Term mask_lengths(Builder& b, std::optional<Term> mask, sym::Expr rows);

}  // namespace stridec::ops
