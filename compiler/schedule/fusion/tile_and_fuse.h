// Tile-and-fuse: runs a GEMM by weights, the producer of its rows and the consumers of its result tile by
// tile.
//
//   for t, i: v[t,i] = f(x)                           for each range of some t, in any order:
//   for t, c: m[t,c] = reduce i v[t,i] * w[i,c]  ->     for t in range, i: v[t,i] = f(x)
//   for t, c: y = g(m)                                  for t in range, c: m[t,c] = reduce i v[t,i] * w[i,c]
//                                                       for t in range, c: y = g(m)
//
// Large intermediates, such as those between Winograd transforms, would be written to memory and read back.
// The intermediates of a tile stay in a thread's cache instead, and a run needs memory for one tile per
// thread. Weights are read once per tile, so tiles are as long as the cache allows, and a GEMM with many
// weights is better not tiled. Several nests may read the GEMM's result, each for some of its columns.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"
#include "compiler/schedule/memory/liveness.h"

namespace stridec::schedule {

// A kernel is named after its nest with the most operations at typical sizes or, if no nest has any, after
// the one that moves the most bytes.
std::string name_of_tiled_group(const loop::Program& program, const std::vector<loop::Nest>& nests);

void tile_and_fuse(loop::Program& program, std::vector<Decision>* decisions = nullptr);
// Computes only which groups there are and which buffers they own, and leaves the nests unchanged. Rewriting
// the nests is most of the work of tile_and_fuse().
void place_tiled_groups(loop::Program& program);

// The groups that tile_and_fuse() will form from the program's top-level steps.
std::vector<StepGroup> future_tiled_groups(const loop::Program& program);

}  // namespace stridec::schedule
