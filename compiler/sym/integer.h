// 64-bit integer arithmetic with overflow detection, and division that rounds towards minus infinity.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace stridec::sym {

using Checked = std::optional<int64_t>;

inline Checked checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline Checked checked_sub(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_sub_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline Checked checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
// Nothing for b == 0 and for the one quotient that overflows.
inline Checked checked_floordiv(int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())) return std::nullopt;
  int64_t q = a / b;
  return q - (a % b != 0 && ((a < 0) != (b < 0)));
}
inline Checked checked_mod(int64_t a, int64_t b) {
  if (b == 0) return std::nullopt;
  if (b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

// b > 0.
inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
inline int64_t floor_mod(int64_t a, int64_t b) { return a % b < 0 ? a % b + b : a % b; }

inline uint64_t magnitude(int64_t a) {
  return a < 0 ? ~static_cast<uint64_t>(a) + 1 : static_cast<uint64_t>(a);
}
inline uint64_t gcd(uint64_t a, uint64_t b) {
  while (b != 0) {
    uint64_t r = a % b;
    a = b, b = r;
  }
  return a;
}

}  // namespace stridec::sym
