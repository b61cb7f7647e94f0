#include "compiler/base/number.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/base/check.h"

namespace stridec {

const FloatFormat& float_format(DType dtype) {
  static const FloatFormat f16{5, 10, 15}, bf16{8, 7, 127};
  static const FloatFormat e4m3{4, 3, 7, true, false, true}, e5m2{5, 2, 15};
  static const FloatFormat e4m3z{4, 3, 8, true, false, true, true}, e5m2z{5, 2, 16, true, false, true, true};
  static const FloatFormat e2m1{2, 1, 1, true, false, false}, e8m0{8, 0, 127, false, false, true};
  switch (dtype) {
    case DType::kF16: return f16;
    case DType::kBF16: return bf16;
    case DType::kF8E4M3: return e4m3;
    case DType::kF8E5M2: return e5m2;
    case DType::kF8E4M3Fnuz: return e4m3z;
    case DType::kF8E5M2Fnuz: return e5m2z;
    case DType::kF4E2M1: return e2m1;
    case DType::kF8E8M0: return e8m0;
    default: STRIDEC_CHECK(false, "not a storage float");
  }
  return f16;
}

namespace {

int max_exponent(const FloatFormat& f) { return (1 << f.exponent_bits) - 1; }

// Codes of magnitude: the largest finite one and the one for NaN.
uint32_t largest(const FloatFormat& f) {
  const uint32_t all =
      (static_cast<uint32_t>(max_exponent(f)) << f.mantissa_bits) | ((1u << f.mantissa_bits) - 1);
  if (f.has_infinity) return (static_cast<uint32_t>(max_exponent(f)) << f.mantissa_bits) - 1;
  return f.has_nan && !f.negative_zero_nan ? all - 1 : all;
}

}  // namespace

uint16_t encode_float(const FloatFormat& f, double value) {
  const uint32_t sign = f.is_signed ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
  const uint32_t infinity = static_cast<uint32_t>(max_exponent(f)) << f.mantissa_bits;
  const uint32_t nan = f.negative_zero_nan ? sign
                       : f.has_infinity    ? infinity | (1u << (f.mantissa_bits - 1))
                       : f.has_nan         ? largest(f) + 1
                                           : largest(f);
  const bool negative = std::signbit(value);
  if (std::isnan(value)) return static_cast<uint16_t>(nan | (negative && !f.negative_zero_nan ? sign : 0));
  if (!f.is_signed && negative) return static_cast<uint16_t>(value == 0 ? 0 : nan);
  const double magnitude = std::fabs(value);
  uint32_t code = 0;
  if (f.mantissa_bits == 0) {  // powers of two alone: the code is the exponent
    if (magnitude > 0) {
      int exponent = 0;
      const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
      exponent +=
          f.bias - 1 + (fraction > 0.75 || (fraction == 0.75 && ((exponent + f.bias - 1) & 1)) ? 1 : 0);
      code = std::isinf(magnitude) || exponent >= max_exponent(f)
                 ? nan
                 : static_cast<uint32_t>(std::max(exponent, 0));
    }
    return static_cast<uint16_t>(code);
  }
  if (std::isinf(magnitude)) {
    code = f.has_infinity ? infinity : f.has_nan ? nan : largest(f);
  } else if (magnitude > 0) {
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int biased = std::max(exponent - 1 + f.bias, 1);  // subnormals share the exponent of code 1
    const double scaled = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - (biased - f.bias)));
    // A mantissa that rounds up to the next power carries into the exponent by itself.
    const double total = scaled + std::ldexp(static_cast<double>(biased - 1), f.mantissa_bits);
    code = total > largest(f) ? (f.has_infinity ? infinity
                                 : f.has_nan    ? nan
                                                : largest(f))
                              : static_cast<uint32_t>(total);
  }
  if (f.negative_zero_nan && (code == 0 || code == sign)) return static_cast<uint16_t>(code);
  return static_cast<uint16_t>(code | (negative ? sign : 0));
}

double decode_float(const FloatFormat& f, uint16_t bits) {
  const uint32_t sign = f.is_signed ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
  const bool negative = (bits & sign) != 0;
  const uint32_t code = bits & ((sign ? sign : 1u << (f.exponent_bits + f.mantissa_bits)) - 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.negative_zero_nan && negative && code == 0) return nan;
  if (code > largest(f)) {
    const bool infinite = f.has_infinity && (code & ((1u << f.mantissa_bits) - 1)) == 0;
    return infinite ? (negative ? -1 : 1) * std::numeric_limits<double>::infinity() : nan;
  }
  const int exponent = static_cast<int>(code >> f.mantissa_bits);
  const double mantissa = static_cast<double>(code & ((1u << f.mantissa_bits) - 1));
  double magnitude;
  if (f.mantissa_bits == 0)
    magnitude = std::ldexp(1.0, exponent - f.bias);
  else if (exponent == 0)
    magnitude = std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  else
    magnitude = std::ldexp(mantissa + std::ldexp(1.0, f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
  return negative ? -magnitude : magnitude;
}

double round_to(DType dtype, double value) {
  if (dtype == DType::kF64) return value;
  if (dtype == DType::kF32) return static_cast<float>(value);
  const FloatFormat& format = float_format(dtype);
  return decode_float(format, encode_float(format, value));
}

void write_float(DType dtype, double value, uint8_t* bytes) {
  if (dtype == DType::kF64) {
    std::memcpy(bytes, &value, 8);
  } else if (dtype == DType::kF32) {
    const float narrow = static_cast<float>(value);
    std::memcpy(bytes, &narrow, 4);
  } else {
    const uint16_t bits = encode_float(float_format(dtype), value);
    std::memcpy(bytes, &bits, static_cast<size_t>(byte_size(dtype)));
  }
}

double read_float(DType dtype, const uint8_t* bytes) {
  if (dtype == DType::kF64) {
    double value;
    std::memcpy(&value, bytes, 8);
    return value;
  }
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, static_cast<size_t>(byte_size(dtype)));
  return decode_float(float_format(dtype), bits);
}

int64_t wrap_to(DType dtype, int64_t value) {
  if (is_bool(dtype)) return value != 0;
  const int bits = info(dtype).bits;
  if (bits == 64) return value;
  const uint64_t low = static_cast<uint64_t>(value) & ((uint64_t{1} << bits) - 1);
  if (is_signed(dtype) && (low >> (bits - 1)))
    return static_cast<int64_t>(low | ~((uint64_t{1} << bits) - 1));
  return static_cast<int64_t>(low);
}

void write_integer(DType dtype, int64_t value, uint8_t* bytes) {
  const int64_t wrapped = wrap_to(dtype, value);
  std::memcpy(bytes, &wrapped, static_cast<size_t>(byte_size(dtype)));
}

int64_t read_integer(DType dtype, const uint8_t* bytes) {
  int64_t value = 0;
  std::memcpy(&value, bytes, static_cast<size_t>(byte_size(dtype)));
  return wrap_to(dtype, value);
}

}  // namespace stridec
