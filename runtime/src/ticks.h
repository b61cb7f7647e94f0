// A clock for traces: CLOCK_MONOTONIC, read by the processor's counter where that counts at a constant
// rate, because clock_gettime takes several times as long.
#pragma once

#include <stdint.h>

#include "clock.h"

namespace stridec::runtime {

struct Ticks {
  bool counted;         // false: the counter is not used
  int64_t count, time;  // at the last ticks_align
  int64_t first_count, first_time;
  int64_t age;   // nanoseconds over which the rate was measured
  int64_t rate;  // nanoseconds per count, times 2^32
};

// Measures the counter's rate, for half a millisecond.
void ticks_start(Ticks& ticks);
// Takes the time of CLOCK_MONOTONIC, and measures the rate anew when it can be known twice as well. To be
// called now and then, or rates that the system adjusts make the two clocks differ.
void ticks_align(Ticks& ticks);

inline int64_t ticks_count() {
#if defined(__x86_64__)
  return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
  return 0;
#endif
}

// Nanoseconds of CLOCK_MONOTONIC. Any thread may call it.
inline int64_t ticks_now(const Ticks& ticks) {
  if (!ticks.counted) return now_ns();
  const int64_t passed = ticks_count() - ticks.count;
  return ticks.time + static_cast<int64_t>(static_cast<__int128>(passed) * ticks.rate >> 32);
}

}  // namespace stridec::runtime
