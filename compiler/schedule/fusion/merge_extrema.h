// Merges nested extrema (separable pooling) into one over both ranges:
//
//   for i, j: t[i,j] = max (r) x[2*i + r, j]
//   for i, j: y[i,j] = max (s) t[i, 2*j + s]          ->   for i, j: y[i,j] = max (r, s) x[2*i + r, 2*j + s]
//
// Separable pooling, one dim after the other, takes fewer loads. On a GPU the memory traffic of t costs more
// if the windows are small and a thread's points share their loads.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Merges where the GPU model expects the one nest to take no longer than both. Runs after layouts are final.
void merge_extrema(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
