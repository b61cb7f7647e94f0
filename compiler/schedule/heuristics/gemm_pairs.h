// Lets two GEMMs of activations that do not depend on each other share a GPU, each with a part of its
// multiprocessors.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/heuristics/choose.h"

namespace stridec::schedule {

// A GEMM of few results and a deep sum, such as a weight gradient, has fewer tiles than a GPU has
// multiprocessors. It leaves some of them idle, or splits the depth of its tiles among blocks, which then
// exchange partial sums:
//
//   dw1 = x^T * dy     64 tiles, split 2: 128 blocks          dw1, dw2: 64 blocks each, at the same time,
//   dw2 = y^T * dz     64 tiles, split 2: 128 blocks    ->    with no sums to exchange
//
// If the cost model expects a gain, moves the first launch of such a pair to directly after the second and
// marks it as concurrent. It moves by less than 16 steps, which limits the growth of live memory. Runs
// after schedules are chosen; leaves nests in `chosen` as they are.
void pair_gemms(loop::Program& program, const GpuTarget& target, const Chosen& chosen);

}  // namespace stridec::schedule
