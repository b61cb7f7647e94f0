// Arithmetic on quantised tensors: integers or narrow floats with a scale and an optional zero point.
#pragma once

#include <optional>

#include "compiler/ops/composite/window.h"

namespace stridec::ops {

// Rounds x / scale to nearest even, adds the zero point and clamps to the range of the integer type `to`. If
// `to` is a narrow float, x / scale is cast to it instead; `saturate` applies to that cast.
Term quantize(Term x, Term scale, std::optional<Term> zero, DType to, bool saturate);
// (x - zero) * scale in f32. Integers are subtracted as integers, which is exact.
Term dequantize(Term x, Term scale, std::optional<Term> zero);

// x - zero as i32. A vector of zero points applies to rows (a GEMM's left operand) or columns (the right
// operand).
Term centered(Term x, std::optional<Term> zero, bool rows);

// A tensor of integers with its parameters: the scale is a scalar or has one value per row (left operand of a
// GEMM) or column (right operand); the zero point likewise.
struct QuantizedOperand {
  Term value, scale;
  std::optional<Term> zero;
};
// The product of two such matrices in f32, plus a bias: integers are multiplied exactly, sums are scaled.
Term quantized_matmul(const QuantizedOperand& a, const QuantizedOperand& b, std::optional<Term> bias = {});

// The same with 32-bit integers as bias, which are added to the sums before they are scaled by the scales and
// alpha. The scale of a is a scalar.
Term quantized_gemm(const QuantizedOperand& a, const QuantizedOperand& b, std::optional<Term> bias,
                    double alpha);
// The product, quantised to the dtype of y.zero. Floats of 8 bits are multiplied in f32.
struct QuantizedResult {
  Term scale, zero;
};
Term requantized_matmul(const QuantizedOperand& a, const QuantizedOperand& b, const QuantizedResult& y);

// Convolution of integers in i32, exact. Zero points are scalars, or have one value per channel of x or
// output of w.
Term integer_convolution(Term x, Term w, std::optional<Term> x_zero, std::optional<Term> w_zero,
                         const Window& window, int64_t groups);
// Its result, plus a bias [outputs] of 32-bit integers, scaled by x.scale * w.scale and quantised to the
// dtype of y.zero. w.scale is a scalar or has one value per output.
Term requantized_convolution(const QuantizedOperand& x, const QuantizedOperand& w, std::optional<Term> bias,
                             const QuantizedResult& y, const Window& window, int64_t groups);

// Repeats each element of dim `dim` `block` times, as far as `size`.
Term repeat_blocks(Term x, int64_t dim, int64_t block, sym::Expr size);
// Shapes a scale or zero point to broadcast with x: a scalar, a vector along `dim`, or, with the rank of x,
// one value per `block` elements along `dim` (0: one per element).
Term quantization_parameter(Term parameter, Term x, int64_t dim, int64_t block);

// Unpacks integers of `bits` (2, 4, 8) from bytes, low bits first: [..., bytes] to [..., bytes * 8 / bits].
Term unpack(Term bytes, int64_t bits);

// Quantises x to u8 with the scale and zero point that cover its range and 0 (ONNX's DynamicQuantizeLinear).
// A tensor of zeros gets scale 1, as in onnxruntime.
struct Quantized {
  Term value, scale, zero;
};
Quantized quantize_dynamically(Term x);

}  // namespace stridec::ops
