// Recomputes rows in each loop that reads them instead of storing them between the loops of a nest.
//
//   for i: r[i] = f(x[i])                 s = reduce sum (i) f(x[i])
//   s = reduce sum (i) r[i]          ->   for i: y[i] = f(x[i]) / s
//   for i: y[i] = r[i] / s
//
// A row that fits neither registers nor shared memory goes to global memory, which costs more than reading
// the row's inputs again.
#pragma once

#include <functional>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Returns the nest without the local buffers that `wanted` accepts. A buffer is kept unless one loop at the
// top of the body computes its elements, from memory that the nest does not write.
loop::Nest with_rows_recomputed(const loop::Program& program, loop::Nest nest,
                                const std::function<bool(loop::BufferId)>& wanted);

}  // namespace stridec::schedule
