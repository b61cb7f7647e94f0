// Fuses consecutive small nests into one GPU kernel, because a launch takes longer than they do.
//
//   for i: a[i] = f(x[i])            nest ()
//   for j: b[j] = g(a[j], y[j])  ->    for i: a[i] = f(x[i])
//                                      for j: b[j] = g(a[j], y[j])
//
// One thread block runs the single point and distributes its loops over its threads. The loops' dims may
// differ: a block barrier replaces the end of a launch. horizontal_fusion.h is the CPU form, in which
// intermediates pass within a point.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void fuse_in_block(loop::Program& program);

}  // namespace stridec::schedule
