#include "compiler/ops/composite/quantization.h"

namespace stridec::ops {

Term quantize(Term x, Term scale, std::optional<Term> zero, DType to, bool saturate) {
  const Term scaled = x / scale;
  if (is_float(to)) return cast(scaled, to, saturate);
  Term rounded = apply(graph::OpKind::kRound, scaled);
  if (zero) {
    // A known scalar zero point becomes a constant, and is dropped if it is 0: the cast to an integer that
    // follows makes -0 equal to 0.
    const auto known = x.builder().known(*zero);
    if (!known || known->size() != 1 || !known->front().is_const() || zero->rank() != 0)
      rounded = rounded + cast(*zero, rounded.dtype());
    else if (known->front().value() != 0)
      rounded = rounded + static_cast<double>(known->front().value());
  }
  return cast(rounded, to, true);
}

Term dequantize(Term x, Term scale, std::optional<Term> zero) {
  if (!is_float(x.dtype())) {
    const Term wide = cast(x, DType::kI32);
    return cast(zero ? wide - cast(*zero, DType::kI32) : wide, DType::kF32) * cast(scale, DType::kF32);
  }
  const Term wide = cast(x, DType::kF32);
  return (zero ? wide - cast(*zero, DType::kF32) : wide) * cast(scale, DType::kF32);
}

Term centered(Term x, std::optional<Term> zero, bool rows) {
  const Term wide = cast(x, DType::kI32);
  if (!zero) return wide;
  Term z = cast(*zero, DType::kI32);
  if (z.rank() == 1 && z.dim(0).is_const(1)) z = reshape(z, {});
  if (z.rank() == 1 && rows) z = unsqueeze(z, {1});
  return wide - unidirectional(z, x.shape(), "the zero point");
}

Term unpack(Term bytes, int64_t bits) {
  const int64_t per_byte = 8 / bits;
  if (per_byte == 1) return bytes;
  const int64_t last = bytes.rank();
  std::vector<Term> parts;
  for (int64_t i = 0; i < per_byte; ++i)
    parts.push_back(unsqueeze(
        apply(graph::OpKind::kBitAnd, apply(graph::OpKind::kShr, bytes, static_cast<double>(i * bits)),
              static_cast<double>((1 << bits) - 1)),
        {last}));
  graph::Shape shape = bytes.shape();
  shape.back() = shape.back() * per_byte;
  return reshape(concat(parts, last), shape);
}

Quantized quantize_dynamically(Term x) {
  Dims all;
  for (int64_t d = 0; d < x.rank(); ++d) all.push_back(d);
  const Term low = minimum(reduce_min(x, all), 0), high = maximum(reduce_max(x, all), 0);
  // A tensor of zeros gets scale 1, as in onnxruntime: divisions by the scale then yield zeros.
  const Term range = high - low, scale = select(equal(range, 0), range + 1.0, range / 255.0);
  const Term zero =
      cast(minimum(maximum(apply(graph::OpKind::kRound, subtract_from(0, low) / scale), 0), 255), DType::kU8);
  return {quantize(x, scale, zero, DType::kU8, true), scale, zero};
}

}  // namespace stridec::ops
