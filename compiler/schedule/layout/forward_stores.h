// Removes copies by storing where the copy would go.
//
//   t[h, m, j] = f(h, m, j)                          c[m, 64*h + j + 128] = f(h, m, j)
//   c[m, i + 128] = t[i//64, m, mod(i, 64)]    ->
//
// The copied buffer has no other reader, and the copy covers all of it. Unlike alias_concats(), which moves a
// buffer as it is, this changes the order of its dims. A store that runs along memory stays so.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

void forward_stores(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
