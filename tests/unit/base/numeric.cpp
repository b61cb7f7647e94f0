#include "compiler/base/numeric.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "compiler/base/ulps.h"

using namespace stridec;

namespace {

const DType kStorage[] = {DType::kF4E2M1,     DType::kF6E2M3, DType::kF6E3M2,     DType::kF8E4M3,
                          DType::kF8E4M3Fnuz, DType::kF8E5M2, DType::kF8E5M2Fnuz, DType::kF8E8M0,
                          DType::kF16,        DType::kBF16};

// The nearest representable value, found by trying all; ties go to the even code. Only for values in range.
double nearest(DType type, double value) {
  double best = 0;
  uint64_t best_code = 0;
  bool first = true;
  for (uint64_t code = 0; code < (uint64_t{1} << info(type).bits); ++code) {
    double candidate = decode_float(type, code);
    if (!std::isfinite(candidate)) continue;
    double was = std::fabs(best - value), now = std::fabs(candidate - value);
    if (first || now < was || (now == was && (code & 1) < (best_code & 1)))
      best = candidate, best_code = code;
    first = false;
  }
  return best;
}

}  // namespace

TEST_CASE("every code of every storage float comes back from its value") {
  for (DType type : kStorage) {
    CAPTURE(name(type));
    for (uint64_t code = 0; code < (uint64_t{1} << info(type).bits); ++code) {
      double value = decode_float(type, code);
      if (std::isnan(value)) {
        CHECK(std::isnan(decode_float(type, encode_float(type, value))));
        continue;
      }
      CHECK(encode_float(type, value) == code);
      if (std::isfinite(value)) CHECK(encode_float(type, value, true) == code);
    }
  }
}

TEST_CASE("tf32 is f32 with the last 13 bits zero") {
  for (uint64_t code = 0; code < uint64_t{1} << 19; ++code) {
    const auto bits = static_cast<uint32_t>(code << 13);
    const double value = decode_float(DType::kTF32, bits);
    CHECK((std::isnan(value) ? std::isnan(std::bit_cast<float>(bits)) : value == std::bit_cast<float>(bits)));
    if (!std::isnan(value)) CHECK(encode_float(DType::kTF32, value) == bits);
  }
  CHECK(round_float(DType::kTF32, 1 + 0x1p-11) == 1);
  CHECK(round_float(DType::kTF32, 1 + 0x3p-11) == 1 + 0x4p-11);
  CHECK(round_float(DType::kTF32, 1 + 0x1.0001p-11) == 1 + 0x2p-11);
  CHECK(round_float(DType::kTF32, -0x1p-149) == 0);
  CHECK(round_float(DType::kTF32, 0x1p-126 - 0x1p-149) == 0x1p-126);
  CHECK(std::isinf(round_float(DType::kTF32, 0x1.fffp127)));
  CHECK(round_float(DType::kTF32, 0x1.fffp127, true) == 0x1.ffcp127);
  CHECK(!dtype_from_onnx(info(DType::kTF32).onnx_type));
}

TEST_CASE("rounding is to the nearest, ties to even") {
  for (DType type : {DType::kF4E2M1, DType::kF6E2M3, DType::kF6E3M2, DType::kF8E4M3, DType::kF8E4M3Fnuz,
                     DType::kF8E5M2, DType::kF8E5M2Fnuz}) {
    CAPTURE(name(type));
    double top = largest_finite(type);
    for (int i = -20000; i <= 20000; ++i) {
      double value = top * i / 20000 * (i % 3 ? 1 : 1.0 / 1024);
      CHECK(round_float(type, value) == nearest(type, value));
    }
    // Halfway between neighbours, and slightly to either side.
    for (uint64_t code = 0; code + 1 < (uint64_t{1} << (info(type).bits - 1)); ++code) {
      double a = decode_float(type, code), b = decode_float(type, code + 1);
      if (!std::isfinite(a) || !std::isfinite(b)) continue;
      double middle = (a + b) / 2;
      CHECK(encode_float(type, middle) == code + (code & 1));
      CHECK(encode_float(type, std::nextafter(middle, -1)) == code);
      CHECK(encode_float(type, std::nextafter(middle, 1e9)) == code + 1);
    }
  }
  for (DType type : {DType::kF16, DType::kBF16})
    for (uint64_t code = 0; code + 1 < 0x8000; ++code) {
      double a = decode_float(type, code), b = decode_float(type, code + 1);
      if (!std::isfinite(a) || !std::isfinite(b)) continue;
      CHECK(encode_float(type, (a + b) / 2) == code + (code & 1));
      CHECK(encode_float(type, std::nextafter((a + b) / 2, 1e99)) == code + 1);
      CHECK(encode_float(type, -std::nextafter((a + b) / 2, 0)) == (0x8000 | code));
    }
}

TEST_CASE("what does not fit follows the tables of Cast") {
  auto bits = [](DType t, double v, bool s) { return encode_float(t, v, s); };
  CHECK(bits(DType::kF16, 65519.99, false) == 0x7bff);
  CHECK(bits(DType::kF16, 65520, false) == 0x7c00);
  CHECK(bits(DType::kF16, -1e9, false) == 0xfc00);
  CHECK(bits(DType::kF16, 1e9, true) == 0x7bff);
  CHECK(decode_float(DType::kF8E4M3, bits(DType::kF8E4M3, 464, false)) == 448);
  CHECK(bits(DType::kF8E4M3, 465, false) == 0x7f);
  CHECK(bits(DType::kF8E4M3, -465, false) == 0xff);
  CHECK(bits(DType::kF8E4M3, -HUGE_VAL, true) == 0xfe);
  CHECK(bits(DType::kF8E4M3Fnuz, -HUGE_VAL, false) == 0x80);
  CHECK(bits(DType::kF8E4M3Fnuz, -HUGE_VAL, true) == 0xff);
  CHECK(bits(DType::kF8E4M3Fnuz, -0.0, false) == 0);
  CHECK(bits(DType::kF8E4M3Fnuz, -1e-9, false) == 0);
  CHECK(bits(DType::kF8E5M2, HUGE_VAL, false) == 0x7c);
  CHECK(bits(DType::kF8E5M2, HUGE_VAL, true) == 0x7b);
  CHECK(bits(DType::kF8E5M2Fnuz, 1e9, false) == 0x80);
  CHECK(bits(DType::kF8E5M2, -0.0, false) == 0x80);
  CHECK(bits(DType::kF4E2M1, 100, false) == 7);
  CHECK(bits(DType::kF4E2M1, -100, false) == 15);
  CHECK(decode_float(DType::kF6E2M3, bits(DType::kF6E2M3, -9, false)) == -7.5);
  CHECK(decode_float(DType::kF6E3M2, bits(DType::kF6E3M2, HUGE_VAL, false)) == 28);
  CHECK(bits(DType::kF6E3M2, 1.0 / 16, false) == 1);
  CHECK(bits(DType::kF8E8M0, 3, true) == 129);     // up to 4
  CHECK(bits(DType::kF8E8M0, 2.9, false) == 128);  // nearest is 2
  CHECK(bits(DType::kF8E8M0, 0, true) == 0);
  CHECK(bits(DType::kF8E8M0, 0, false) == 0xff);
  CHECK(bits(DType::kF8E8M0, 1e300, true) == 0xfe);
}

TEST_CASE("doubles round once, not through float") {
  double just_above_tie = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);
  CHECK(encode_float(DType::kF16, just_above_tie) == 0x3c01);
  CHECK(encode_float(DType::kF16, static_cast<float>(just_above_tie)) == 0x3c00);
}

TEST_CASE("integers wrap or saturate") {
  CHECK(wrap_integer(DType::kI8, 200) == -56);
  CHECK(wrap_integer(DType::kU8, -1) == 255);
  CHECK(wrap_integer(DType::kI4, 9) == -7);
  CHECK(wrap_integer(DType::kU2, 7) == 3);
  CHECK(wrap_integer(DType::kBool, 2) == 1);
  CHECK(float_to_integer(DType::kI8, -1.9, false) == -1);
  CHECK(float_to_integer(DType::kI8, 300, true) == 127);
  CHECK(float_to_integer(DType::kU8, -3, true) == 0);
  CHECK(float_to_integer(DType::kI32, std::nan(""), true) == 0);
  CHECK(float_to_integer(DType::kI64, 1e30, true) == std::numeric_limits<int64_t>::max());
  CHECK(float_to_integer(DType::kU64, 0x1.8p63, false) == static_cast<int64_t>(0xc000000000000000));
  CHECK(float_to_integer(DType::kI32, 1e30, false) == -1);  // some value, no trap
  CHECK(integer_to_integer(DType::kU64, DType::kI8, -1, true) == 127);
  CHECK(integer_to_integer(DType::kI64, DType::kU8, -1, true) == 0);
  CHECK(integer_to_integer(DType::kI64, DType::kU64, -1, true) == 0);
}

TEST_CASE("units in the last place count the floats of the type") {
  const auto between = [](DType type, double a, double b) {
    return ulps_between(type, encode_float(type, a), encode_float(type, b));
  };
  for (DType type : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kF8E4M3, DType::kF4E2M1}) {
    CHECK(between(type, 1, 1) == 0);
    CHECK(between(type, 0.0, -0.0) == 0);
    CHECK(between(type, 1, -1) == 2 * between(type, 0, 1));
  }
  CHECK(between(DType::kF32, 1, std::nextafter(1.0f, 2.0f)) == 1);
  CHECK(between(DType::kF32, std::nextafter(0.0f, -1.0f), std::nextafter(0.0f, 1.0f)) == 2);
  CHECK(between(DType::kBF16, 1, 1.0078125) == 1);
  CHECK(between(DType::kF8E8M0, 1, 4) == 2);
  const double infinite = std::numeric_limits<double>::infinity(), nan = std::nan("");
  CHECK(between(DType::kF32, nan, nan) == 0);
  CHECK(between(DType::kF32, infinite, infinite) == 0);
  CHECK(between(DType::kF32, infinite, largest_finite(DType::kF32)) == UINT64_MAX);
  CHECK(between(DType::kF32, nan, 1) == UINT64_MAX);
  CHECK(between(DType::kF64, infinite, -infinite) == UINT64_MAX);
}
