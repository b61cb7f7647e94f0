// Small nests one after the other as one, on a GPU: a launch takes longer than they do.
//
//   for i: a[i] = f(x[i])            nest ()
//   for j: b[j] = g(a[j], y[j])  ->    for i: a[i] = f(x[i])
//                                      for j: b[j] = g(a[j], y[j])
//
// A block of threads is the one point, and deals out its loops: their dims need not be the same, since a barrier of the block
// stands where the end of a launch stood. horizontal_fusion.h is the form for a CPU, whose points pass on what they make.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void fuse_in_block(loop::Program& program);

}  // namespace stridec::schedule
