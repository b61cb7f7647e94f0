// Fusion at a loop: a product by weights, what makes its rows and what reads them, strip by strip.
//
//   for t, i: v[t,i] = f(x)                            for each range of some t, in any order:
//   for t, c: m[t,c] = reduce i v[t,i] * w[i,c]   ->     for t in range, i: v[t,i] = f(x)
//   for t, c: y = g(m)                                    for t in range, c: m[t,c] = reduce i v[t,i] * w[i,c]
//                                                         for t in range, c: y = g(m)
//
// Where what passes between the nests is large, as Winograd's transforms are, it is written to memory and read back; of a
// strip it stays in a thread's cache, and a run needs memory for a strip a thread. Weights are read once a strip, so that
// strips are as long as the cache allows, and many weights are better read once. Several nests may read what the product
// makes, each for some of its columns.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/memory/arena.h"

namespace stridec::schedule {

// Figures of no machine in particular, as in winograd.cpp.
inline constexpr int64_t kTileCache =
    272 << 10;  // of a thread, for what passes; the shortest strip may take twice that
inline constexpr int64_t kWeightCache = 5 << 18;  // what that leaves of a core's second cache for weights
// Where weights do not fit there, they come from further away for every strip, and are the larger part of what does.
inline constexpr int64_t kLongTileCache = 3 * kTileCache;
inline constexpr double kLeastTiles = 8;      // at typical sizes of a single image: work for several threads
inline constexpr double kWeightTraffic = 2.5;  // of weights, over what no longer goes through memory

// The points of the longest strips, where so many bytes pass at each of so many points, through a product by so many bytes
// of weights (0: none); 0: what passes is too large for a cache, or the points are too few.
int64_t points_of_tile(double points, int64_t passing, double weights);

// Where in a strip's memory each of its own buffers lies: those that are not in use together share memory.
ArenaPlan own_memory(const loop::Program& program, const loop::TiledGroup& strips);

// A kernel is called as the nest in it is that most of its operations are in, at typical sizes; of nests without any, as the
// one that moves most.
std::string name_of_tiled_group(const loop::Program& program, const std::vector<loop::Nest>& nests);

void tile_and_fuse(loop::Program& program, std::vector<Decision>* decisions = nullptr);
// The same with nests as they were: where strips are and what they keep to themselves, without the cutting of nests, which
// is most of the work.
void place_tiled_groups(loop::Program& program);

}  // namespace stridec::schedule
