// Exact arithmetic of element types: what a value becomes when it is stored as f16, bf16, tf32, an 8-, 6-
// or 4-bit float, or an integer of some width. Rounding is to the nearest, ties to even, in one step from double.
//
// Sources: IEEE 754 binary16, the OCP FP8 and MX specifications, and the conversion tables of ONNX Cast-25.
#pragma once

#include <cstdint>

#include "compiler/base/dtype.h"

namespace stridec {

// The value of a float's bits (f64: all 64 bits). NaNs come back as NaN.
double decode_float(DType type, uint64_t bits);

// The bits of `value` rounded to `type`. Where it does not fit: the largest finite number if `saturate`,
// otherwise infinity, or NaN in formats without one. f4e2m1, f6e2m3 and f6e3m2 have neither and always
// saturate; their NaN is -0.
// f8e8m0 has no sign (negative values give those of their magnitude) and rounds up if `saturate`, to the
// nearest otherwise.
uint64_t encode_float(DType type, double value, bool saturate = false);

// decode_float(encode_float(value)).
double round_float(DType type, double value, bool saturate = false);
double largest_finite(DType type);

// The low bits of `value`, sign- or zero-extended (u64: its bits; bool: value != 0).
int64_t wrap_integer(DType type, int64_t value);

struct IntegerRange {
  int64_t lo;
  uint64_t hi;
};
IntegerRange integer_range(DType type);

// Every value of `from`, NaN and -0.0 included, is one of `to`.
bool holds_all(DType to, DType from);

// Truncates towards zero. NaN gives 0; out of range: clamped if `saturate`, otherwise wrapped where the value
// fits 64 bits and clamped to 64 bits first where it does not.
int64_t float_to_integer(DType type, double value, bool saturate);
// `value` has dtype `from` (u64: its bits).
int64_t integer_to_integer(DType from, DType to, int64_t value, bool saturate);

}  // namespace stridec
