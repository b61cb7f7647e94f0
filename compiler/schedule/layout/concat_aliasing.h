// Concat elimination by buffer aliasing: data that is in several buffers, or copied from one into a part of
// another, is stored once.
//
//   t[i] = f(x[i])                       c3[i] = f(x[i])
//   c2[i] = t[i]; c2[i + 4] = u[i]  ->   c3[i + 4] = ...           (u's place, in c3 as well)
//   c3[i] = t[i]; c3[i + 4] = u[i]       y[i] = g(c3[i])           (which read c2)
//   c3[i + 8] = v[i]                     c3[i + 8] = v[i]
//   y[i] = g(c2[i])
//
// A buffer becomes a slice of another if both hold the same wherever both are defined: each store into that
// slice is also a store to the buffer or a copy of it, and nothing changes either after the copy. Larger
// buffers are filled first, so that the last concatenation of a chain owns the parts of the earlier ones. If
// a run would then have more memory live at once, because the larger buffer is needed earlier, nothing
// changes.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// `piece`: an alignment in bytes. A buffer whose start and rows are aligned to it stays so.
void alias_concats(loop::Program& program, std::vector<Decision>* decisions = nullptr, int64_t piece = 1);

}  // namespace stridec::schedule
