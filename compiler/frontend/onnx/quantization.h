// Arithmetic on quantised numbers that several operators share.
#pragma once

#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

// x / scale rounded to the nearest even, shifted by the zero point, and cut to what the integer type holds;
// narrow floats are cast.
Term quantize(Term x, Term scale, std::optional<Term> zero, DType to, bool saturate);
// (x - zero) * scale in f32; integers subtract as integers, so that nothing is lost.
Term dequantize(Term x, Term scale, std::optional<Term> zero);
// x - zero as i32; a vector of zero points goes with the rows (of the left operand) or the columns (of the
// right).
Term centered(Term x, std::optional<Term> zero, bool rows);

// Numbers of `bits` (2, 4, 8) side by side in bytes, low bits first: [..., bytes] to [..., bytes * per byte].
Term unpack(Term bytes, int64_t bits);

// The scale and zero point (u8) with which DynamicQuantizeLinear covers x, and x in them.
struct Quantized {
  Term value, scale, zero;
};
Quantized quantize_dynamically(Term x);

}  // namespace stridec::onnx
