#include "compiler/sym/interval.h"

#include <algorithm>

#include "compiler/sym/integer.h"

namespace stridec::sym {
namespace {

constexpr int64_t kLow = Interval::kNone, kHigh = Interval::kUnlimited;

bool infinite(int64_t a) { return a == kLow || a == kHigh; }

int64_t times(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  bool negative = (a < 0) != (b < 0);
  Checked r = infinite(a) || infinite(b) ? std::nullopt : checked_mul(a, b);
  return r ? *r : negative ? kLow : kHigh;
}

// floordiv of bounds; b >= 1 and may be infinite.
int64_t over(int64_t a, int64_t b) {
  if (infinite(a)) return a;
  if (infinite(b)) return a < 0 ? -1 : 0;
  return floor_div(a, b);
}

Interval negated(Interval a) { return multiply(a, -1); }

}  // namespace

Interval add(Interval a, Interval b) {
  Interval r;
  if (a.has_lo() && b.has_lo()) r.lo = checked_add(a.lo, b.lo).value_or(a.lo < 0 ? kLow : kHigh - 1);
  if (a.has_hi() && b.has_hi()) r.hi = checked_add(a.hi, b.hi).value_or(a.hi < 0 ? kLow + 1 : kHigh);
  return r;
}

Interval multiply(Interval a, Interval b) {
  auto [lo, hi] = std::minmax({times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi)});
  return {lo, hi};
}

Interval multiply(Interval a, int64_t k) { return multiply(a, Interval{k, k}); }

Interval square(Interval a) {
  Interval r = multiply(a, a);
  return {a.contains(0) ? 0 : std::max<int64_t>(r.lo, 0), r.hi};
}

Interval divide(Interval a, Interval b) {
  if (b.hi <= -1) return divide(negated(a), negated(b));
  if (b.lo >= 0) {  // 0 itself gives no value
    int64_t least = std::max<int64_t>(b.lo, 1), most = std::max(b.hi, least);
    return {std::min(over(a.lo, least), over(a.lo, most)), std::max(over(a.hi, least), over(a.hi, most))};
  }
  // A divisor of either sign: the quotient's magnitude does not exceed a's.
  Interval n = negated(a);
  return {std::min(a.lo, n.lo), std::max(a.hi, n.hi)};
}

Interval remainder(Interval a, Interval b) {
  if (b.hi <= -1) return negated(remainder(negated(a), negated(b)));
  Interval r{0, b.hi == kHigh ? kHigh : b.hi - 1};
  if (b.lo < 0) r.lo = b.lo == kLow ? kLow : b.lo + 1;
  if (b.lo < 0) r.hi = std::max<int64_t>(r.hi, 0);
  if (a.lo >= 0) {
    if (b.lo >= 0) r.hi = std::min(r.hi, a.hi);
    if (b.lo >= 1 && a.hi < b.lo) return a;
  }
  if (b.is_point() && b.lo > 0 && !infinite(a.lo) && !infinite(a.hi) &&
      floor_div(a.lo, b.lo) == floor_div(a.hi, b.lo)) {
    return {floor_mod(a.lo, b.lo), floor_mod(a.hi, b.lo)};
  }
  return r;
}

Interval smaller(Interval a, Interval b) { return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)}; }
Interval larger(Interval a, Interval b) { return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)}; }
Interval hull(Interval a, Interval b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }
Interval intersect(Interval a, Interval b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

}  // namespace stridec::sym
