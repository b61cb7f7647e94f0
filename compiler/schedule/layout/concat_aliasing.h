// Concatenations of concatenations: what lies in several buffers, or is copied from one into a part of another, lies once.
//
//   t[i] = f(x[i])                       c3[i] = f(x[i])
//   c2[i] = t[i]; c2[i + 4] = u[i]  ->   c3[i + 4] = ...           (u's place, in c3 as well)
//   c3[i] = t[i]; c3[i + 4] = u[i]       y[i] = g(c3[i])           (which read c2)
//   c3[i + 8] = v[i]                     c3[i + 8] = v[i]
//   y[i] = g(c2[i])
//
// A buffer becomes a slice of another one where the two hold the same wherever both hold anything: each store into that slice
// is also one to the buffer or a copy of it, and nothing changes either behind the copy. Larger buffers are filled first, so
// that the last concatenation of a chain owns what the earlier ones are parts of. Where a run would then have more memory alive
// at once, because the larger buffer is needed sooner, things stay as they are.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// `piece`: what begins at multiples of so many bytes and has rows that do, still does.
void alias_concats(loop::Program& program, std::vector<Decision>* decisions = nullptr, int64_t piece = 1);

}  // namespace stridec::schedule
