// Small nests over the same dims as one: horizontal fusion.
//
//   for n, c: keys[n, c]   = k[n, c]          for n, c: keys[n, c]   = k[n, c]
//   for n, c: values[n, c] = v[n, c]   ->               values[n, c] = v[n, c]
//
// as what a decoder keeps of a token, what a loop carries, masks and boxes of a detector. None of them is worth a second
// thread by itself, and what a launch takes is a part of their time; together they are one launch, whose points are shared
// out once there are enough. What passes between two of them passes at a point, and their vectors run along the same dim.
//
// Of a CPU alone. On a GPU launches take longer, and a block can do loops over any dims one after the other: there small nests
// are joined without their dims being matched (block_fusion.h). A CPU's launch has dims to share out and lanes to run along,
// which that form gives up.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

void fuse_horizontally(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
