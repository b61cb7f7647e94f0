// Interval arithmetic with saturation: the extreme int64 values are infinities.
#pragma once

#include <cstdint>
#include <limits>

namespace stridec::sym {

// lo <= value <= hi; the extreme values stand for infinity.
struct Interval {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();       // no lower bound
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();  // no upper bound
  int64_t lo = kNone;
  int64_t hi = kUnlimited;

  bool has_lo() const { return lo != kNone; }
  bool has_hi() const { return hi != kUnlimited; }
  bool is_point() const { return lo == hi && has_lo() && has_hi(); }
  bool empty() const { return lo > hi; }  // the facts contradict each other
  bool contains(int64_t v) const { return lo <= v && v <= hi; }
  bool operator==(const Interval&) const = default;
};

Interval add(Interval a, Interval b);
Interval multiply(Interval a, Interval b);
Interval multiply(Interval a, int64_t k);
Interval square(Interval a);
Interval divide(Interval a, Interval b);     // floordiv; b == 0 has no value
Interval remainder(Interval a, Interval b);  // mod
Interval smaller(Interval a, Interval b);    // min
Interval larger(Interval a, Interval b);     // max
Interval hull(Interval a, Interval b);
Interval intersect(Interval a, Interval b);

}  // namespace stridec::sym
