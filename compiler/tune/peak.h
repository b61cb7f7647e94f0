// Measures the peak rates of this machine: the roofline for `stridec bench`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/base/target.h"

namespace stridec::tune {

struct Peaks {
  double flops = 0;  // per second: f32 multiply-adds (two each), on registers only
  // Bytes per second that a loop reads, on all threads together, each from its own memory of half the level's
  // size. For memory: what a copy reads and writes, or what a loop reads, whichever is more.
  double l1 = 0, l2 = 0, l3 = 0, memory = 0;

  // Rates of the instructions for other operand types, also on registers only.
  struct Product {
    DType a = DType::kF32;  // operand type of the micro-kernels (kernels/gemm.h)
    bool tiles = false;
    double flops = 0;
  };
  std::vector<Product> products;
  // For the first micro-kernel that a schedule's text names; f32 if it names none.
  double flops_of(std::string_view schedule) const;

  // The smallest level that holds this many bytes if `threads` threads share them.
  struct Level {
    std::string_view name;  // "L1", "L2", "L3", "memory"
    double rate;            // bytes per second
  };
  Level level_of(double bytes, const CpuTarget& target, int threads) const;
};

// For a target with AMX tiles, Linux must have granted the tiles to this process before the call. Opening a
// model that uses them requests that. Takes about a fifth of a second. Uses the fastest of several short
// runs, so other load on the machine does not count.
Peaks measure_peaks(const CpuTarget& target, int threads);

}  // namespace stridec::tune
