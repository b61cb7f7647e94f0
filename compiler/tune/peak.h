// What this machine can do at most, measured: the roofline that `stridec bench` holds kernels against.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/base/target.h"

namespace stridec::tune {

struct Peaks {
  double flops = 0;  // a second: f32 multiply-adds (two each) on registers alone
  // Bytes a second that a loop reads from, all threads together, each from its own memory of half the level's size;
  // memory: what it reads and writes when it copies, or reads, whichever is more.
  double l1 = 0, l2 = 0, l3 = 0, memory = 0;

  // Of the instructions that multiply other elements, on registers alone likewise.
  struct Product {
    DType a = DType::kF32;  // of the micro-kernels' (kernels/gemm.h)
    bool tiles = false;
    double flops = 0;
  };
  std::vector<Product> products;
  // Of the micro-kernel that a schedule's text names first, of f32 where it names none.
  double flops_of(std::string_view schedule) const;

  // The smallest level that holds this many bytes, `threads` sharing them.
  struct Level {
    std::string_view name;  // "L1", "L2", "L3", "memory"
    double rate;            // bytes a second
  };
  Level level_of(double bytes, const CpuTarget& target, int threads) const;
};

// Tile registers want this process to be allowed them, as it is once a model that uses them is open. Takes about a fifth
// of a second. The least of several short runs: other work on the machine does not count.
Peaks measure_peaks(const CpuTarget& target, int threads);

}  // namespace stridec::tune
