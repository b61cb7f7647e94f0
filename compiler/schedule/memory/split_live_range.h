// Splits live ranges: gives separate memory to a part of a buffer that a run computes long before the rest,
// as when a network's first half contributes to a concatenation in its second half.
//
//   b[i, c + 4] = f(i, c)          t[i, c] = f(i, c)
//   y[i, c] = g(b[i, c + 4])  ->   y[i, c] = g(t[i, c])
//   ...                            ...                        (b does not take memory here)
//   b[i, c] = h(i, c)              b[i, c + 4] = t[i, c]
//                                  b[i, c] = h(i, c)
//
// Stored in place such a part needs no copy, but the whole buffer is live from then on.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {

// A box of the buffer `of`, by its dims, that the launch at `made` writes. The step at `needed` is the first
// that touches the rest of the buffer or changes the box.
struct EarlyPart {
  loop::BufferId of;
  int made, needed;  // positions among the program's top steps
  std::vector<int64_t> first;
  std::vector<sym::Expr> shape;
};
// The early parts of scratch buffers, where other steps run in between.
std::vector<EarlyPart> early_parts(const loop::Program& program, const Flow& flow);

// Gives the part its own memory, and copies it into the buffer before the step that needs the rest.
void split_off(loop::Program& program, const Flow& flow, const EarlyPart& part);

}  // namespace stridec::schedule
