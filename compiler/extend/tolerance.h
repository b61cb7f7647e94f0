// Whether two results are as near to each other as a tolerance says.
#pragma once

#include <algorithm>
#include <cmath>

namespace stridec::extend {

// An infinity is near to itself alone: a bound that is scaled by it would allow anything. NaNs are near to
// each other.
inline bool is_near(double a, double b, double relative, double absolute) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  if (!std::isfinite(a) || !std::isfinite(b)) return false;
  return std::abs(a - b) <= absolute + relative * std::max(std::abs(a), std::abs(b));
}

}  // namespace stridec::extend
