#include "ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stridec::runtime {
namespace {

constexpr int64_t kFirstAge = 500000;

// Whether the counter has the same rate in all states of the processor.
bool counts_evenly() {
#if defined(__x86_64__)
  constexpr unsigned kPower = 0x80000007, kInvariant = 1 << 8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(kPower, &a, &b, &c, &d) && (d & kInvariant);
#else
  return false;
#endif
}

// A rate that differs much from the one before is of a machine that slept or moved: the measurement starts
// again.
void measure_rate(Ticks& ticks) {
  const int64_t age = ticks.time - ticks.first_time, counts = ticks.count - ticks.first_count;
  constexpr double kOne = 4294967296;  // in the format of `rate`
  const auto rate =
      static_cast<int64_t>(counts > 0 ? kOne * static_cast<double>(age) / static_cast<double>(counts) : 0);
  const int64_t change = rate > ticks.rate ? rate - ticks.rate : ticks.rate - rate;
  if (ticks.rate && change > ticks.rate / 1000) {
    ticks.first_time = ticks.time;
    ticks.first_count = ticks.count;
    return;
  }
  ticks.age = age;
  ticks.rate = rate;
  ticks.counted = rate > 0;
}

void read_both(Ticks& ticks) {
  ticks.time = now_ns();
  ticks.count = ticks_count();
}

}  // namespace

void ticks_start(Ticks& ticks) {
  ticks = {};
  if (!counts_evenly()) return;
  read_both(ticks);
  ticks.first_count = ticks.count;
  ticks.first_time = ticks.time;
  do read_both(ticks);
  while (ticks.time - ticks.first_time < kFirstAge);
  measure_rate(ticks);
}

void ticks_align(Ticks& ticks) {
  if (!ticks.counted) return;
  const int64_t before = ticks_now(ticks);
  read_both(ticks);
  if (ticks.time - ticks.first_time > 2 * ticks.age) measure_rate(ticks);
  if (ticks.time < before) ticks.time = before;  // time does not go back
}

}  // namespace stridec::runtime
