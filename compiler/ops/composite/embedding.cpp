#include "compiler/ops/composite/embedding.h"

#include "compiler/ops/composite/normalization.h"
#include "compiler/ops/composite/quantization.h"

namespace stridec::ops {
namespace {

// `part` of the parameter, or all of it, as real numbers.
Term dequantised(const EmbeddingParameter& parameter, Term part) {
  if (!parameter.scale) return part;
  return dequantize(part, reshape(*parameter.scale, {}), reshape(parameter.zero.value(), {}));
}

}  // namespace

Embedded embed(const EmbeddingInputs& inputs, const EmbeddingLayer& layer) {
  const Term ids = inputs.words;
  Term x = dequantised(layer.words, gather(layer.words.value, ids, 0));
  if (inputs.positions)
    x = x + dequantised(layer.positions, gather(layer.positions.value, *inputs.positions, 0));
  else
    x = x + dequantised(layer.positions, slice(layer.positions.value, 0, 0, ids.dim(1)));
  if (inputs.segments && layer.segments)
    x = x + dequantised(*layer.segments, gather(layer.segments->value, *inputs.segments, 0));
  const Term scale = dequantised(layer.scale, layer.scale.value),
             bias = dequantised(layer.bias, layer.bias.value);
  return {layer_norm(x, {x.rank() - 1}, scale, bias, layer.epsilon).value, x};
}

Term mask_lengths(Builder& b, std::optional<Term> mask, sym::Expr rows) {
  return mask ? reduce_sum(*mask, {1}) : filled(b, {rows}, DType::kI32, 0);
}

}  // namespace stridec::ops
