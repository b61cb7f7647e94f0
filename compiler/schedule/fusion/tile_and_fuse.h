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
#include "compiler/schedule/analysis/decision.h"
#include "compiler/schedule/memory/liveness.h"

namespace stridec::schedule {

// A kernel is called as the nest in it is that most of its operations are in, at typical sizes; of nests without any, as the
// one that moves most.
std::string name_of_tiled_group(const loop::Program& program, const std::vector<loop::Nest>& nests);

void tile_and_fuse(loop::Program& program, std::vector<Decision>* decisions = nullptr);
// The same with nests as they were: where strips are and what they keep to themselves, without the cutting of nests, which
// is most of the work.
void place_tiled_groups(loop::Program& program);

// What tile_and_fuse() will make of the program's top steps.
std::vector<StepGroup> later_strips(const loop::Program& program);

}  // namespace stridec::schedule
