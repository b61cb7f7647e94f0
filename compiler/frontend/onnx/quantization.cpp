// Quantised operators of ai.onnx: integers (or narrow floats) with a scale and a zero point.
#include "compiler/ops/composite/quantization.h"

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/normalization.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// Shapes a scale or zero point to broadcast with x: a scalar, one value per index of an axis, or one per
// block along it.
Term beside(const Context& c, Term parameter, Term x) {
  if (parameter.rank() == 0 || (parameter.rank() == 1 && parameter.dim(0).is_const(1)))
    return reshape(parameter, {});
  const int64_t axis = c.axis(c.integer("axis", 1), x.rank());
  if (parameter.rank() == 1) {
    Shape shape(x.shape().size(), 1);
    shape[static_cast<size_t>(axis)] = parameter.dim(0);
    return unidirectional(reshape(parameter, shape), x.shape(), "the scale or zero point");
  }
  const int64_t block = c.integer("block_size", 0);
  if (block <= 0) {
    if (parameter.rank() == x.rank()) return parameter;
    c.does_not_fit(cat("a scale of rank ", parameter.rank(), " needs a block_size"));
  }
  const auto d = static_cast<size_t>(axis);
  Shape split = parameter.shape(), stretched = split, joined = split;
  split.insert(split.begin() + axis + 1, 1);
  stretched.insert(stretched.begin() + axis + 1, block);
  joined[d] = joined[d] * block;
  return slice(reshape(expand(reshape(parameter, split), stretched), joined), axis, 0, x.shape()[d]);
}

Outputs quantize_linear(Context& c) {
  const Term x = c.in(0);
  DType to = DType::kU8;
  if (c.has(2))
    to = c.in(2).dtype();
  else
    to = c.dtype("output_dtype", to);
  const DType precision = c.dtype("precision", x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32);
  const Term scale = beside(c, c.in(1), x);
  std::optional<Term> zero;
  if (c.has(2)) zero = beside(c, c.in(2), x);
  return {quantize(cast(x, precision), cast(scale, precision), zero, to, c.integer("saturate", 1) != 0)};
}

Outputs dequantize_linear(Context& c) {
  const Term x = c.in(0), scale = c.in(1);
  std::optional<Term> zero;
  if (c.has(2)) zero = beside(c, c.in(2), x);
  return {cast(dequantize(x, beside(c, scale, x), zero), c.dtype("output_dtype", scale.dtype()))};
}

Outputs dynamic_quantize_linear(Context& c) {
  const Quantized q = quantize_dynamically(c.in(0));
  return {q.value, q.scale, q.zero};
}

Outputs matmul_integer(Context& c) {
  return {matmul(centered(c.in(0), c.optional(2), true), centered(c.in(1), c.optional(3), false))};
}

Outputs qlinear_matmul(Context& c) {
  const Term a = c.in(0), a_scale = c.in(1), a_zero = c.in(2), b = c.in(3), b_scale = c.in(4),
             b_zero = c.in(5);
  const auto rows = [](Term s) {
    return s.rank() == 1 && !s.dim(0).is_const(1) ? unsqueeze(s, {1}) : s.rank() == 1 ? reshape(s, {}) : s;
  };
  const auto columns = [](Term s) { return s.rank() == 1 && s.dim(0).is_const(1) ? reshape(s, {}) : s; };
  Term sum = a;
  if (is_float(a.dtype()))
    sum = matmul(cast(a, DType::kF32) - cast(rows(a_zero), DType::kF32),
                 cast(b, DType::kF32) - cast(columns(b_zero), DType::kF32));
  else
    sum = cast(matmul(centered(a, a_zero, true), centered(b, b_zero, false)), DType::kF32);
  const auto beside_sum = [&](Term s) { return unidirectional(s, sum.shape(), "a scale or zero point"); };
  const Term real =
      sum * (cast(beside_sum(rows(a_scale)), DType::kF32) * cast(beside_sum(columns(b_scale)), DType::kF32));
  return {quantize(real, cast(beside_sum(rows(c.in(6))), DType::kF32), beside_sum(rows(c.in(7))),
                   c.in(7).dtype(), true)};
}

// Reshapes per-channel values for dim `dim` of a tensor: 0 for weights, 1 for the result.
Term over_channels(Term v, int64_t rank, int64_t dim) {
  if (v.rank() == 0 || v.dim(0).is_const(1)) return reshape(v, {});
  Shape shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(dim)] = v.dim(0);
  return reshape(v, shape);
}

Term integer_conv(const Context& c, Term x, Term w, std::optional<Term> x_zero, std::optional<Term> w_zero) {
  Term wide_x = cast(x, DType::kI32), wide_w = cast(w, DType::kI32);
  if (x_zero) wide_x = wide_x - over_channels(cast(*x_zero, DType::kI32), x.rank(), 1);
  if (w_zero) wide_w = wide_w - over_channels(cast(*w_zero, DType::kI32), w.rank(), 0);
  const Window window = read_window(c, x, Shape(w.shape().begin() + 2, w.shape().end()));
  return {c.b, c.b.add1(OpKind::kConv, {wide_x.id(), wide_w.id()},
                        {{"strides", window.strides},
                         {"dilations", window.dilations},
                         {"before", window.before},
                         {"after", window.after},
                         {"groups", c.integer("group", 1)}})};
}

Outputs conv_integer(Context& c) { return {integer_conv(c, c.in(0), c.in(1), c.optional(2), c.optional(3))}; }

// channels_last is an attribute of com.microsoft's variant.
Outputs qlinear_conv(Context& c) {
  const bool last = c.integer("channels_last", 0) != 0;
  const Term x = last ? channels_second(c.in(0)) : c.in(0);
  Term sum = integer_conv(c, x, c.in(3), c.in(2), c.in(5));
  if (c.has(8)) sum = sum + over_channels(c.in(8), sum.rank(), 1);
  const Term real = cast(sum, DType::kF32) * (reshape(c.in(1), {}) * over_channels(c.in(4), sum.rank(), 1));
  const Term y = quantize(real, reshape(c.in(6), {}), reshape(c.in(7), {}), c.in(7).dtype(), true);
  return {last ? channels_last(y) : y};
}

constexpr Row kRows[] = {
    {"ConvInteger", conv_integer},
    {"DequantizeLinear", dequantize_linear},
    {"DynamicQuantizeLinear", dynamic_quantize_linear},
    {"MatMulInteger", matmul_integer},
    {"QLinearConv", qlinear_conv},
    {"QLinearMatMul", qlinear_matmul},
    {"QuantizeLinear", quantize_linear},
    {"DequantizeLinear", dequantize_linear, 1, kAnyLater, "com.microsoft"},
    {"QLinearConv", qlinear_conv, 1, kAnyLater, "com.microsoft"},
    {"QuantizeLinear", quantize_linear, 1, kAnyLater, "com.microsoft"},
};

}  // namespace

std::span<const Row> quantization_rows() { return kRows; }

}  // namespace stridec::onnx
