// Small nests one after the other as one, on a GPU: a launch takes longer than they do.
//
//   for i: a[i] = f(x[i])            nest ()
//   for j: b[j] = g(a[j], y[j])  ->    for i: a[i] = f(x[i])
//                                      for j: b[j] = g(a[j], y[j])
//
// A block of threads is the one point, and deals out its loops.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void join_small_nests(loop::Program& program);

}  // namespace stridec::schedule
