#include "compiler/base/ulps.h"

#include <cmath>

#include "compiler/base/numeric.h"

namespace stridec {
namespace {

// Order-preserving: magnitudes of formats with a sign count up and down from 0.
int64_t place_of(DType type, uint64_t bits) {
  if (type == DType::kF8E8M0) return static_cast<int64_t>(bits);
  const uint64_t sign = uint64_t{1} << (info(type).bits - 1);
  const auto magnitude = static_cast<int64_t>(bits & (sign - 1));
  return bits & sign ? -magnitude : magnitude;
}

}  // namespace

uint64_t ulps_between(DType type, uint64_t a, uint64_t b) {
  const double x = decode_float(type, a), y = decode_float(type, b);
  if (x == y || (std::isnan(x) && std::isnan(y))) return 0;
  if (!std::isfinite(x) || !std::isfinite(y)) return UINT64_MAX;
  const int64_t from = place_of(type, a), to = place_of(type, b);
  return from < to ? static_cast<uint64_t>(to) - static_cast<uint64_t>(from)
                   : static_cast<uint64_t>(from) - static_cast<uint64_t>(to);
}

}  // namespace stridec
