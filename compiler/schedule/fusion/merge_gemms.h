// Products of one value with several weights become one product with several results, where that takes less time.
//
//   for r, c < 10: p[r,c] = f(sum k x[r,k] * v[k,c] + a[c])      for r, c < 14: t = sum k x[r,k] * vw[k,c] + ab[c]
//   for r, c < 4:  q[r,c] = g(sum k x[r,k] * w[k,c] + b[c])  ->                 c < 10: p[r,c] = f(t);  c >= 10: q[r,c - 10] = g(t)
//
// A product fetches and packs x, the less of its time the more columns it has, and leaves lanes of its last vectors idle; two
// of them share both. Convolutions are products of windows, and their channels are columns. Weights and vectors along the
// columns are joined when compiling (Program::prepack) as far as both compute the same; what follows, which each has for
// itself, is computed for all columns and stored for its own, so that long ones stay apart. The results lie in memory
// alike, as one kernel's vectors run along one dim of both. Nests of strips and chains stay as they are: what they pass on
// never leaves a cache, which is worth more. Convolutions by Winograd share a transform instead (winograd.h).
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

// Behind layouts, strips and chains.
void merge_gemms(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
