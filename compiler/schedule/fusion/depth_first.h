// Depth-first fusion: runs chains of convolutions and the nests around them by overlapped tiles of image
// rows.
//
//   for n, y, x, c: t[n,y,x,c] = ... x[n,y,x,:] ...
//   for n, y, x, c: y = ... t[n, 2*y + r - 1, x + s - 1, :] ...
//   ->
//   for n, for each range of some y, in any order:
//     for the rows of t that these y read, x, c: t = ...
//     for y in range, x, c: y = ...
//
// The intermediates of a tile live in a thread's scratch. Rows that two consecutive tiles of a thread both
// read are moved from one to the next; otherwise they are recomputed. Weights are read once per tile. Applies
// where it lowers the peak of live memory (reduce_peak.h) or takes less time (depth_first_traffic.h). A chain
// may consist of any nests where each is the only reader of the previous one's only output and rows map to
// rows: convolutions with strides, paddings and dilations, Winograd transforms, pooling, pointwise nests. The
// last nest may also read a buffer with other, later readers; that buffer then stays in memory. This fuses
// partial sums of a mean and a variance, or of a pool over all pixels, with the producer while its rows are
// still in cache.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

// Records a decision with the reason for each chain that is not fused.
void fuse_depth_first(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
