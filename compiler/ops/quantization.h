// Arithmetic on quantised tensors: integers or narrow floats with a scale and a zero point.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

// x / scale rounded to nearest even, plus the zero point, clamped to the range of the integer type `to`; narrow floats are
// cast. `saturate` is for those casts.
Term quantize(Term x, Term scale, std::optional<Term> zero, DType to, bool saturate);
// (x - zero) * scale in f32. Integers subtract as integers, so that nothing is lost.
Term dequantize(Term x, Term scale, std::optional<Term> zero);

// x - zero as i32. A vector of zero points belongs to the rows (of a GEMM's left operand) or to the columns (of its right one).
Term centered(Term x, std::optional<Term> zero, bool rows);

// Integers of `bits` (2, 4, 8) packed in bytes, low bits first: [..., bytes] to [..., bytes * 8 / bits].
Term unpack(Term bytes, int64_t bits);

// x as u8 with the scale and zero point that cover its range and 0 (ONNX's DynamicQuantizeLinear). A tensor of zeros has the
// scale 1, as in onnxruntime.
struct Quantized {
  Term value, scale, zero;
};
Quantized quantize_dynamically(Term x);

}  // namespace stridec::ops
