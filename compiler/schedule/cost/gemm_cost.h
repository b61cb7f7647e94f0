// What the analytic models of contractions and of chains have in common: cycles of one core.
#pragma once

#include "compiler/kernels/gemm.h"

namespace stridec::schedule {

constexpr double kEpilogueVector = 4;  // load of the sum, bias, activation, store

// Of a register tile: the sums over `k` of `rows` rows, where a comes from L2 and b from L1 or, with `far`, from L2 as well.
double sum_cycles(const kernels::GemmKernel& kernel, double rows, double k, bool far,
                  const CpuTarget& target);

// What a call of a kernel of tile registers takes beyond that of others: sums that go to memory and are there late, and
// come back where they are continued; and one of a deep kernel, whose sums are those of lanes.
double tile_call_cycles(const kernels::GemmKernel& kernel, double rows);

constexpr double kShape = 250;  // of tile registers, once in a task

}  // namespace stridec::schedule
