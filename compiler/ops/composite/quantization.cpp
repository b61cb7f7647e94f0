#include "compiler/ops/composite/quantization.h"

#include "compiler/base/text.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/convolution.h"
#include "compiler/ops/shapes.h"

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

namespace {

// A scalar, or one value per column.
Term scalar_or_vector(Term v) {
  return v.rank() == 0 || v.dim(v.rank() - 1).is_const(1) ? reshape(v, {}) : v;
}
std::optional<Term> scalar_or_vector(const std::optional<Term>& v) {
  return v ? std::optional(scalar_or_vector(*v)) : v;
}

Term integer_matmul(const QuantizedOperand& a, const QuantizedOperand& b) {
  const Term x = centered(a.value, scalar_or_vector(a.zero), true),
             y = centered(b.value, scalar_or_vector(b.zero), false);
  return matmul(x, y);
}

}  // namespace

Term quantized_matmul(const QuantizedOperand& a, const QuantizedOperand& b, std::optional<Term> bias) {
  const Term sums = cast(integer_matmul(a, b), DType::kF32);
  Term a_scale = scalar_or_vector(a.scale);
  if (a_scale.rank() == 1) a_scale = unsqueeze(a_scale, {1});
  const Term y = sums * (a_scale * scalar_or_vector(b.scale));
  return bias ? y + *bias : y;
}

Term quantized_gemm(const QuantizedOperand& a, const QuantizedOperand& b, std::optional<Term> bias,
                    double alpha) {
  Term sums = integer_matmul(a, b);
  if (bias) sums = sums + *bias;
  return cast(sums, DType::kF32) * (reshape(a.scale, {}) * scalar_or_vector(b.scale) * alpha);
}

Term requantized_matmul(const QuantizedOperand& a, const QuantizedOperand& b, const QuantizedResult& y) {
  const auto rows = [](Term s) {
    return s.rank() == 1 && !s.dim(0).is_const(1) ? unsqueeze(s, {1}) : s.rank() == 1 ? reshape(s, {}) : s;
  };
  const auto columns = [](Term s) { return s.rank() == 1 && s.dim(0).is_const(1) ? reshape(s, {}) : s; };
  const auto product = [&] {
    if (!is_float(a.value.dtype()))
      return cast(matmul(centered(a.value, a.zero, true), centered(b.value, b.zero, false)), DType::kF32);
    const auto shifted = [](Term x, Term zero) { return cast(x, DType::kF32) - cast(zero, DType::kF32); };
    return matmul(shifted(a.value, rows(*a.zero)), shifted(b.value, columns(*b.zero)));
  };
  const Term sum = product();
  const auto beside_sum = [&](Term s) { return unidirectional(s, sum.shape(), "a scale or zero point"); };
  const Term real =
      sum * (cast(beside_sum(rows(a.scale)), DType::kF32) * cast(beside_sum(columns(b.scale)), DType::kF32));
  const Term scale = cast(beside_sum(rows(y.scale)), DType::kF32);
  return quantize(real, scale, beside_sum(rows(y.zero)), y.zero.dtype(), true);
}

namespace {

// Shapes per-channel values for dim `dim` of a tensor: 0 for weights, 1 for the result.
Term along_channels(Term v, int64_t rank, int64_t dim) {
  if (v.rank() == 0 || v.dim(0).is_const(1)) return reshape(v, {});
  return along_dim(v, dim, rank);
}

}  // namespace

Term integer_convolution(Term x, Term w, std::optional<Term> x_zero, std::optional<Term> w_zero,
                         const Window& window, int64_t groups) {
  Term wide_x = cast(x, DType::kI32), wide_w = cast(w, DType::kI32);
  if (x_zero) wide_x = wide_x - along_channels(cast(*x_zero, DType::kI32), x.rank(), 1);
  if (w_zero) wide_w = wide_w - along_channels(cast(*w_zero, DType::kI32), w.rank(), 0);
  return convolution(wide_x, wide_w, window, groups);
}

Term requantized_convolution(const QuantizedOperand& x, const QuantizedOperand& w, std::optional<Term> bias,
                             const QuantizedResult& y, const Window& window, int64_t groups) {
  Term sum = integer_convolution(x.value, w.value, x.zero, w.zero, window, groups);
  if (bias) sum = sum + along_channels(*bias, sum.rank(), 1);
  const Term real = cast(sum, DType::kF32) * (reshape(x.scale, {}) * along_channels(w.scale, sum.rank(), 1));
  const Term scale = reshape(y.scale, {});
  return quantize(real, scale, reshape(y.zero, {}), y.zero.dtype(), true);
}

Term repeat_blocks(Term x, int64_t dim, int64_t block, sym::Expr size) {
  Shape split = x.shape(), stretched = split, joined = split;
  split.insert(split.begin() + dim + 1, 1);
  stretched.insert(stretched.begin() + dim + 1, block);
  sym::Expr& all = joined[static_cast<size_t>(dim)];
  all = all * block;
  return slice(reshape(expand(reshape(x, split), stretched), joined), dim, 0, size);
}

Term quantization_parameter(Term parameter, Term x, int64_t dim, int64_t block) {
  if (parameter.rank() == 0 || (parameter.rank() == 1 && parameter.dim(0).is_const(1)))
    return reshape(parameter, {});
  if (parameter.rank() == 1)
    return unidirectional(along_dim(parameter, dim, x.rank()), x.shape(), "the scale or zero point");
  if (block > 0) return repeat_blocks(parameter, dim, block, x.dim(dim));
  if (parameter.rank() != x.rank())
    does_not_fit(cat("a scale of rank ", parameter.rank(), " needs a block_size"));
  return parameter;
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
