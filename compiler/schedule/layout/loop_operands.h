// Copies a matrix that the products of a loop read again and again into panels, once, before the loop.
//
//   while t < steps:                                for p, k, j: panel[p, k, j] = w[k, 32*p + j]
//     y[n, c] = sum over k of x[n, k] w[k, c]   ->  while t < steps:
//                                                     y[n, 32*p + j] = sum over k of x[n, k] panel[p, k, j]
//
// Weights that are constants are packed when compiling. Those that a training step changes are states: a
// product copies their panels to scratch each time it runs, which takes longer than multiplying where rows
// are few, as in the steps of a recurrent layer.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Applies to factors that are plain loads from states, inputs or tensors which the loop does not write, at
// places that do not depend on the loop, with at least as many columns as the other factor has rows.
void pack_loop_operands(loop::Program& program);

}  // namespace stridec::schedule
