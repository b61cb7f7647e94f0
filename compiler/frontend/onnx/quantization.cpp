// Quantised operators of ai.onnx: integers (or narrow floats) with a scale and a zero point.
#include "compiler/ops/composite/quantization.h"

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/contraction.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// A scale or zero point, shaped to broadcast with x.
Term beside(const Context& c, Term parameter, Term x) {
  const bool scalar = parameter.rank() == 0 || (parameter.rank() == 1 && parameter.dim(0).is_const(1));
  const int64_t axis = scalar ? 0 : c.axis(c.integer("axis", 1), x.rank());
  return quantization_parameter(parameter, x, axis, c.integer("block_size", 0));
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

// Inputs i, i + 1 and i + 2: a tensor, its scale and its zero point.
QuantizedOperand operand(const Context& c, size_t i) {
  return {.value = c.in(i), .scale = c.in(i + 1), .zero = c.in(i + 2)};
}

Outputs qlinear_matmul(Context& c) {
  return {requantized_matmul(operand(c, 0), operand(c, 3), {.scale = c.in(6), .zero = c.in(7)})};
}

Window weights_window(const Context& c, Term x, Term w) {
  return read_window(c, x, Shape(w.shape().begin() + 2, w.shape().end()));
}

Outputs conv_integer(Context& c) {
  const Term x = c.in(0), w = c.in(1);
  return {integer_convolution(x, w, c.optional(2), c.optional(3), weights_window(c, x, w),
                              c.integer("group", 1))};
}

// channels_last is an attribute of com.microsoft's variant.
Outputs qlinear_conv(Context& c) {
  const bool last = c.integer("channels_last", 0) != 0;
  QuantizedOperand x = operand(c, 0);
  if (last) x.value = channels_second(x.value);
  const QuantizedOperand w = operand(c, 3);
  const Term y = requantized_convolution(x, w, c.optional(8), {.scale = c.in(6), .zero = c.in(7)},
                                         weights_window(c, x.value, w.value), c.integer("group", 1));
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
