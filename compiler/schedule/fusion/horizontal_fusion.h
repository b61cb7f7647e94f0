// Horizontal fusion: merges small nests over the same dims into one.
//
//   for n, c: keys[n, c]   = k[n, c]          for n, c: keys[n, c]   = k[n, c]
//   for n, c: values[n, c] = v[n, c]   ->               values[n, c] = v[n, c]
//
// Examples are a decoder's cache updates, values carried by a loop, and masks and boxes of a detector. None
// of the nests justifies a second thread, and the launch is a noticeable part of their time. Fused, they are
// one launch, whose points are distributed over threads once there are enough. Intermediates between two of
// them pass within a point, and all are vectorised along the same dim.
//
// CPU only. On a GPU launches take longer, and one block can run loops over any dims in sequence, so small
// nests are joined there without matching their dims (block_fusion.h). A CPU kernel needs dims to distribute
// over threads and to vectorise, which that form gives up.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

void fuse_horizontally(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
