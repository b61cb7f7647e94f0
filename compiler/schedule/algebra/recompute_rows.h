// Rows that a nest keeps between its loops, computed again by each loop that reads them:
//
//   for i: r[i] = f(x[i])                 s = reduce sum (i) f(x[i])
//   s = reduce sum (i) r[i]          ->   for i: y[i] = f(x[i]) / s
//   for i: y[i] = r[i] / s
//
// A row that is longer than registers and shared memory goes through memory, which costs more than what a row is made
// from, read again.
#pragma once

#include <functional>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// The nest without the local buffers of which `wanted` says so, as far as that can be done: their elements come from one
// loop at the top of the body, out of what the nest does not write.
loop::Nest with_rows_recomputed(const loop::Program& program, loop::Nest nest,
                                const std::function<bool(loop::BufferId)>& wanted);

}  // namespace stridec::schedule
