// Loop distribution: long elementwise loops of few points become kernels of their own.
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

//   for c: m = reduce n x[n,c]                     for c: m[c] = reduce n x[n,c]
//          for n: y[n,c] = x[n,c] - m      ->      for n, c: y[n,c] = x[n,c] - m[c]
//
// As one nest the points keep what they read in cache, which pays where a point is a row (softmax, layer
// norm). The points of batch normalization are channels: there are too few of them to occupy a GPU, and what
// each reads fits no cache. Values that a loop needs from before it are computed again if they are cheap, and
// pass through memory otherwise, as do rows that a point keeps and that are too long for shared memory.
void distribute_loops(loop::Program& program, const GpuTarget& target,
                      std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
