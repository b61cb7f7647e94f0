// Arithmetic on quantised tensors: integers or narrow floats with a scale and an optional zero point.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

// Rounds x / scale to nearest even, adds the zero point and clamps to the range of the integer type `to`. If
// `to` is a narrow float, x / scale is cast to it instead; `saturate` applies to that cast.
Term quantize(Term x, Term scale, std::optional<Term> zero, DType to, bool saturate);
// (x - zero) * scale in f32. Integers are subtracted as integers, which is exact.
Term dequantize(Term x, Term scale, std::optional<Term> zero);

// x - zero as i32. A vector of zero points applies to rows (a GEMM's left operand) or columns (the right
// operand).
Term centered(Term x, std::optional<Term> zero, bool rows);

// Unpacks integers of `bits` (2, 4, 8) from bytes, low bits first: [..., bytes] to [..., bytes * 8 / bits].
Term unpack(Term bytes, int64_t bits);

// Quantises x to u8 with the scale and zero point that cover its range and 0 (ONNX's DynamicQuantizeLinear).
// A tensor of zeros gets scale 1, as in onnxruntime.
struct Quantized {
  Term value, scale, zero;
};
Quantized quantize_dynamically(Term x);

}  // namespace stridec::ops
