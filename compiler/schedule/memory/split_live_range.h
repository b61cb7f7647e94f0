// Parts of a buffer that a run makes long before the rest, as what a network's first half leaves for a concatenation in its second.
//
//   b[i, c + 4] = f(i, c)          t[i, c] = f(i, c)
//   y[i, c] = g(b[i, c + 4])  ->   y[i, c] = g(t[i, c])
//   ...                            ...                        (b does not take memory here)
//   b[i, c] = h(i, c)              b[i, c + 4] = t[i, c]
//                                  b[i, c] = h(i, c)
//
// Stored in place such a part takes no copy, but all of the buffer is in memory from then on.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {

// A box of `of`, by its dims, that launches from `made` on alone touch; the step at `needed` is the first that touches the rest.
struct EarlyPart {
  loop::BufferId of;
  int made, needed;  // positions among the program's top steps
  std::vector<int64_t> first;
  std::vector<sym::Expr> shape;
};
// Of scratch buffers, where other steps run between.
std::vector<EarlyPart> early_parts(const loop::Program& program, const Flow& flow);

// Gives the part memory of its own, and copies it before the step that needs the rest.
void set_apart(loop::Program& program, const Flow& flow, const EarlyPart& part);

}  // namespace stridec::schedule
