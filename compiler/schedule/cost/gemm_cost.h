// Cost terms shared by the analytical models of contractions and chains, in cycles of one core.
#pragma once

#include "compiler/kernels/gemm.h"

namespace stridec::schedule {

constexpr double kEpilogueVector = 4;  // load of the sum, bias, activation, store

// Cycles of a register tile: the sums over `k` of `rows` rows. a comes from L2; b comes from L1 or, with
// `far`, from L2.
double sum_cycles(const kernels::GemmKernel& kernel, double rows, double k, bool far,
                  const CpuTarget& target);

// Cycles that a call of a tile-register kernel takes beyond a call of others: its sums go to memory, arrive
// late and come back if they are continued. For a deep kernel: cycles to add up the lanes of its sums.
double tile_call_cycles(const kernels::GemmKernel& kernel, double rows);

// Cycles to configure the tile registers, once per task.
constexpr double kShape = 250;

}  // namespace stridec::schedule
