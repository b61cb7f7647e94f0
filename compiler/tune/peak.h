// What this machine can do at most, measured: the roofline that `stridec bench` holds kernels against.
#pragma once

#include <cstdint>

#include "compiler/base/target.h"

namespace stridec::tune {

struct Peaks {
  double flops = 0;  // a second: f32 multiply-adds (two each) on registers alone
  // Bytes a second that a loop reads from, all threads together, each from its own memory of half the level's size;
  // memory: what it reads and writes when it copies, or reads, whichever is more.
  double l1 = 0, l2 = 0, l3 = 0, memory = 0;

  // Of the smallest level that holds this many bytes, `threads` sharing them.
  double bandwidth(double bytes, const CpuTarget& target, int threads) const;
};

// Takes about a fifth of a second. The least of several short runs: other work on the machine does not count.
Peaks measure_peaks(const CpuTarget& target, int threads);

}  // namespace stridec::tune
