// Conversion of values to element types: f16, bf16, tf32, 8-, 6- and 4-bit floats, and integers of each
// width. Rounds to nearest, ties to even, in one step from double.
//
// Sources: IEEE 754 binary16, the OCP FP8 and MX specifications, and the conversion tables of ONNX Cast-25.
#pragma once

#include <cstdint>

#include "compiler/base/dtype.h"

namespace stridec {

// The value of a float's bit pattern (f64: all 64 bits). NaN bit patterns give NaN.
double decode_float(DType type, uint64_t bits);

// The bits of `value` rounded to `type`. A value that is out of range gives the largest finite number if
// `saturate`, otherwise infinity, or NaN in formats without infinity. f4e2m1, f6e2m3 and f6e3m2 have neither
// and always saturate; their NaN is -0. f8e8m0 has no sign: negative values are encoded by their magnitude.
// It rounds up if `saturate`, otherwise to nearest.
uint64_t encode_float(DType type, double value, bool saturate = false);

// decode_float(encode_float(value)).
double round_float(DType type, double value, bool saturate = false);
double largest_finite(DType type);
double machine_epsilon(DType type);  // the distance from 1 to the next larger number

// The low bits of `value`, sign- or zero-extended (u64: its bits; bool: value != 0).
int64_t wrap_integer(DType type, int64_t value);

struct IntegerRange {
  int64_t lo;
  uint64_t hi;
};
IntegerRange integer_range(DType type);

// Whether every value of `from`, including NaN and -0.0, is representable in `to`.
bool holds_all(DType to, DType from);
// Truncates towards zero. NaN gives 0 (bool: 1). A value out of range is clamped if `saturate`; otherwise it
// is clamped to 64 bits and then wrapped.
int64_t float_to_integer(DType type, double value, bool saturate);
// `value` has dtype `from` (u64: its bits).
int64_t integer_to_integer(DType from, DType to, int64_t value, bool saturate);

}  // namespace stridec
