// Numbers of every dtype as bytes in memory, little endian: how constants are made and read at compile time.
#pragma once

#include <cstdint>

#include "compiler/base/dtype.h"

namespace stridec {

// The layout of a binary float format of at most 16 bits.
struct FloatFormat {
  int exponent_bits, mantissa_bits, bias;
  bool is_signed = true;
  bool has_infinity = true;        // the all-ones exponent is infinity and NaN
  bool has_nan = true;             // without infinity: the all-ones code is NaN
  bool negative_zero_nan = false;  // fnuz: the code of -0 is the only NaN, and there is no infinity
};
const FloatFormat& float_format(DType storage_float);  // of is_storage_float() dtypes

// To the nearest, ties to even. What does not fit becomes infinity, else NaN, else the largest number.
uint16_t encode_float(const FloatFormat& format, double value);
double decode_float(const FloatFormat& format, uint16_t bits);
double round_to(DType dtype, double value);  // decode(encode(value)) for any float dtype

// One element at `bytes`. Integers wrap to the dtype's range; bool is value != 0.
void write_float(DType dtype, double value, uint8_t* bytes);
double read_float(DType dtype, const uint8_t* bytes);
void write_integer(DType dtype, int64_t value, uint8_t* bytes);
int64_t read_integer(DType dtype, const uint8_t* bytes);
int64_t wrap_to(DType dtype, int64_t value);  // modulo 2^bits into the dtype's range; u64 as its bits

}  // namespace stridec
