// Small nests over the same dims as one: horizontal fusion.
//
//   for n, c: keys[n, c]   = k[n, c]          for n, c: keys[n, c]   = k[n, c]
//   for n, c: values[n, c] = v[n, c]   ->               values[n, c] = v[n, c]
//
// as what a decoder keeps of a token, what a loop carries, masks and boxes of a detector. None of them is worth a second
// thread by itself, and what a launch takes is a part of their time; together they are one launch, whose points are shared
// out once there are enough. What passes between two of them passes at a point, and their vectors run along the same dim.
// On a GPU, where launches take longer, nests over different dims are joined, too (small_nests.h).
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion.h"

namespace stridec::schedule {

void join_small_siblings(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
