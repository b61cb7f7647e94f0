// Depth first: convolutions one after the other, and what stands around them, by strips of an image's rows.
//
//   for n, y, x, c: t[n,y,x,c] = ... x[n,y,x,:] ...             for n, for each range of some y, in any order:
//   for n, y, x, c: y = ... t[n, 2*y + r - 1, x + s - 1, :] ...   for the rows of t that these y read, x, c: t = ...
//                                                          ->     for y in range, x, c: y = ...
//
// What passes is memory of a thread, for a strip. Rows that two strips read are moved from the one to the other where a thread
// does both, one after the other, and computed again elsewhere; weights are read once a strip. This is done where it lowers the
// most that is alive at once during a run (reduce_peak.h), and where it takes less time (depth_first_traffic.h). Any nests may follow each
// other so, if each alone reads what the one before alone writes, and rows lead to rows: convolutions with strides, paddings and
// dilations, Winograd's transforms, pooling, pointwise nests. The last one may also read what others read later, which then stays
// in memory: partial sums of a mean and a variance, or of a pool over all pixels, are taken of rows that a cache still holds.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

// With a line for each chain that stays as it is, with the reason.
void fuse_depth_first(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
