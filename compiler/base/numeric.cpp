#include "compiler/base/numeric.h"

#include <bit>
#include <cmath>
#include <limits>

#include "compiler/base/check.h"

namespace stridec {
namespace {

// A small binary float: sign, exponent, mantissa. Codes of magnitudes start at zero and are in ascending
// order.
struct Format {
  int mantissa_bits;
  int bias;
  int sign_shift;
  uint32_t largest;   // code of the largest finite magnitude
  uint32_t infinity;  // 0: none
  uint32_t nan;       // 0: none
  bool negative_zero;
};

constexpr Format kF16{10, 15, 15, 0x7bff, 0x7c00, 0x7e00, true};
constexpr Format kBF16{7, 127, 15, 0x7f7f, 0x7f80, 0x7fc0, true};
constexpr Format kTF32{10, 127, 18, 0x3fbff, 0x3fc00, 0x3fe00, true};  // in the upper bits of an f32
constexpr int kTF32Unused = 13;
constexpr Format kE4M3{3, 7, 7, 0x7e, 0, 0x7f, true};
constexpr Format kE4M3Fnuz{3, 8, 7, 0x7f, 0, 0x80, false};
constexpr Format kE5M2{2, 15, 7, 0x7b, 0x7c, 0x7e, true};
constexpr Format kE5M2Fnuz{2, 16, 7, 0x7f, 0, 0x80, false};
constexpr Format kE2M1{1, 1, 3, 0x7, 0, 0, true};
constexpr Format kE2M3{3, 1, 5, 0x1f, 0, 0, true};
constexpr Format kE3M2{2, 3, 5, 0x1f, 0, 0, true};

const Format& format(DType type) {
  switch (type) {
    case DType::kF16: return kF16;
    case DType::kBF16: return kBF16;
    case DType::kTF32: return kTF32;
    case DType::kF8E4M3: return kE4M3;
    case DType::kF8E4M3Fnuz: return kE4M3Fnuz;
    case DType::kF8E5M2: return kE5M2;
    case DType::kF8E5M2Fnuz: return kE5M2Fnuz;
    case DType::kF4E2M1: return kE2M1;
    case DType::kF6E2M3: return kE2M3;
    case DType::kF6E3M2: return kE3M2;
    default: break;
  }
  check_failed(__FILE__, __LINE__, "a storage float", std::string(name(type)));
}

double decode(const Format& f, uint32_t bits) {
  uint32_t sign_bit = 1u << f.sign_shift;
  uint32_t code = bits & (sign_bit - 1);
  bool negative = bits & sign_bit;
  if (!f.negative_zero && code == 0 && negative) return std::numeric_limits<double>::quiet_NaN();
  if (code > f.largest) {
    if (f.infinity == 0 || code != f.infinity) return std::numeric_limits<double>::quiet_NaN();
    return negative ? -HUGE_VAL : HUGE_VAL;
  }
  uint32_t mantissa = code & ((1u << f.mantissa_bits) - 1);
  int exponent = static_cast<int>(code >> f.mantissa_bits);
  double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits)
                    : std::ldexp(mantissa + (1u << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
  return negative ? -magnitude : magnitude;
}

uint32_t encode(const Format& f, double value, bool saturate) {
  uint64_t bits = std::bit_cast<uint64_t>(value);
  uint32_t sign = static_cast<uint32_t>(bits >> 63) << f.sign_shift;
  bits &= ~(uint64_t{1} << 63);
  if (std::isnan(value)) {
    if (f.nan == 0) return 1u << f.sign_shift;
    return f.negative_zero ? sign | f.nan : f.nan;
  }
  uint32_t overflow = saturate || (f.infinity == 0 && f.nan == 0) ? f.largest
                      : f.infinity                                ? f.infinity
                                                                  : f.nan;
  overflow = overflow == f.nan && !f.negative_zero ? f.nan : sign | overflow;
  if (std::isinf(value)) return overflow;
  int exponent = static_cast<int>(bits >> 52) - 1023;
  uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  int least = 1 - f.bias;  // exponent of the smallest normal number and of all subnormals
  int shift = 52 - f.mantissa_bits + (exponent < least ? least - exponent : 0);
  // In units of the last place. A subnormal double is far below the smallest value of all formats.
  uint64_t rounded = 0;
  if (shift <= 53 && exponent > -1023) {
    uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
    rounded = mantissa >> shift;
    if (rest > half || (rest == half && (rounded & 1))) ++rounded;
  }
  // The implicit bit of a normal number carries into the exponent field. So does a mantissa that rounds up to
  // a power of two.
  int64_t code = static_cast<int64_t>(rounded);
  if (exponent > least) code += static_cast<int64_t>(exponent - least) << f.mantissa_bits;
  if (code > f.largest) return overflow;
  if (code == 0 && !f.negative_zero) return 0;
  return sign | static_cast<uint32_t>(code);
}

// Powers of two from 2^-127 (code 0) to 2^127; code 255 is NaN.
uint32_t encode_e8m0(double value, bool saturate) {
  if (std::isnan(value)) return 0xff;
  double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return saturate ? 0xfe : 0xff;
  if (magnitude == 0) return saturate ? 0 : 0xff;
  int exponent;
  double half_to_one = std::frexp(magnitude, &exponent);  // magnitude == half_to_one * 2^exponent
  int power = exponent - 1;
  if (saturate ? half_to_one > 0.5 : half_to_one >= 0.75) ++power;
  if (power > 127) return saturate ? 0xfe : 0xff;
  if (power < -127) return saturate ? 0 : 0xff;
  return static_cast<uint32_t>(power + 127);
}

}  // namespace

double decode_float(DType type, uint64_t bits) {
  switch (type) {
    case DType::kF64: return std::bit_cast<double>(bits);
    case DType::kF32: return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case DType::kF8E8M0:
      return (bits & 0xff) == 0xff ? std::numeric_limits<double>::quiet_NaN()
                                   : std::ldexp(1.0, static_cast<int>(bits & 0xff) - 127);
    case DType::kTF32: return decode(kTF32, static_cast<uint32_t>(bits) >> kTF32Unused);
    default: return decode(format(type), static_cast<uint32_t>(bits));
  }
}

uint64_t encode_float(DType type, double value, bool saturate) {
  switch (type) {
    case DType::kF64: return std::bit_cast<uint64_t>(value);
    case DType::kF32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kF8E8M0: return encode_e8m0(value, saturate);
    case DType::kTF32: return encode(kTF32, value, saturate) << kTF32Unused;
    default: return encode(format(type), value, saturate);
  }
}

double round_float(DType type, double value, bool saturate) {
  if (type == DType::kF64) return value;
  if (type == DType::kF32) return static_cast<float>(value);
  return decode_float(type, encode_float(type, value, saturate));
}

double largest_finite(DType type) {
  if (type == DType::kF64) return std::numeric_limits<double>::max();
  if (type == DType::kF32) return std::numeric_limits<float>::max();
  if (type == DType::kF8E8M0) return std::ldexp(1.0, 127);
  const Format& f = format(type);
  return decode(f, f.largest);
}

double machine_epsilon(DType type) { return decode_float(type, encode_float(type, 1) + 1) - 1; }

int64_t wrap_integer(DType type, int64_t value) {
  if (type == DType::kBool) return value != 0;
  int unused = 64 - info(type).bits;
  if (unused == 0) return value;
  uint64_t shifted = static_cast<uint64_t>(value) << unused;
  return is_signed(type) ? static_cast<int64_t>(shifted) >> unused : static_cast<int64_t>(shifted >> unused);
}

IntegerRange integer_range(DType type) {
  int bits = info(type).bits;
  if (!is_signed(type)) return {0, bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1};
  uint64_t top = uint64_t{1} << (bits - 1);
  return {static_cast<int64_t>(~(top - 1)), top - 1};
}

bool holds_all(DType to, DType from) {
  if (to == from) return true;
  if (is_bool(from)) return is_integer(to) || (is_float(to) && info(to).bits >= 16);
  const int bits = info(from).bits + (is_signed(to) && !is_signed(from) && !is_float(from) ? 1 : 0);
  if (is_integer(from)) {
    if (is_integer(to)) return (is_signed(to) || !is_signed(from)) && bits <= info(to).bits;
    // Bits of the significand.
    return (to == DType::kF64 && bits <= 53) || (to == DType::kF32 && bits <= 24) ||
           ((to == DType::kF16 || to == DType::kTF32) && bits <= 11) || (to == DType::kBF16 && bits <= 8);
  }
  return (to == DType::kF64 && is_float(from)) || (to == DType::kF32 && is_storage_float(from));
}

int64_t float_to_integer(DType type, double value, bool saturate) {
  if (std::isnan(value)) return type == DType::kBool ? 1 : 0;
  if (type == DType::kBool) return value != 0;
  double whole = std::trunc(value);
  IntegerRange range = integer_range(type);
  if (saturate) {
    if (whole <= static_cast<double>(range.lo)) return range.lo;
    if (whole >= static_cast<double>(range.hi)) return static_cast<int64_t>(range.hi);
  }
  if (whole >= 0x1p63)
    return wrap_integer(type,
                        static_cast<int64_t>(whole >= 0x1p64 ? ~uint64_t{0} : static_cast<uint64_t>(whole)));
  if (whole < -0x1p63) return wrap_integer(type, std::numeric_limits<int64_t>::min());
  return wrap_integer(type, static_cast<int64_t>(whole));
}

int64_t integer_to_integer(DType from, DType to, int64_t value, bool saturate) {
  if (!saturate || to == DType::kBool) return wrap_integer(to, value);
  IntegerRange range = integer_range(to);
  bool negative = value < 0 && from != DType::kU64;
  if (negative) return value < range.lo ? range.lo : value;
  return static_cast<uint64_t>(value) > range.hi ? static_cast<int64_t>(range.hi) : value;
}

}  // namespace stridec
