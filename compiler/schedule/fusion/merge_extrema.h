// An extremum of extrema is one over both ranges:
//
//   for i, j: t[i,j] = max (r) x[2*i + r, j]
//   for i, j: y[i,j] = max (s) t[i, 2*j + s]          ->   for i, j: y[i,j] = max (r, s) x[2*i + r, 2*j + s]
//
// A pooling window goes along one dim after the other, which takes fewer loads. A GPU waits for t instead, where the windows
// are small and a thread's points share what they load.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Where the model of the GPU expects the one nest to take no longer than both. Layouts are final.
void merge_extrema(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
