// Moves independent launches next to each other and marks them, so that a GPU may run them at the same time.
//
//   dx = dy * w^T                  dx = dy * w^T
//   dx -> n                        concurrent: dw = x^T * dy
//   dw = x^T * dy          ->      concurrent: db = sum of the rows of dy
//   db = sum of the rows of dy     dx -> n
//
// In a CUDA graph the launches of a group become nodes without edges between them: a kernel of few blocks
// leaves multiprocessors to the others, and the last wave of blocks of one kernel overlaps with the first of
// the next. A backward pass is full of such launches: gradients of weights and biases, rounded weights,
// optimizer updates.
//
// Launches move up by less than kWindow steps, which limits the growth of live memory. A group has at most
// kMost members. Chains of dependent launches stay: their kernels start early (programmatic dependent
// launch), and a node with several predecessors cannot start early.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void group_launches(loop::Program& program);

}  // namespace stridec::schedule
