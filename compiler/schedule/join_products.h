// Products of one value with several weights, of which one has few columns, become one product with several results.
//
//   for r, c < 10: p[r,c] = f(sum k x[r,k] * v[k,c] + a[c])      for r, c < 14: t = f(sum k x[r,k] * vw[k,c] + ab[c])
//   for r, c < 4:  q[r,c] = f(sum k x[r,k] * w[k,c] + b[c])  ->                 c < 10: p[r,c] = t;  c >= 10: q[r,c - 10] = t
//
// A product of few columns fetches and packs x for few multiplications, and leaves lanes of its last vectors idle; two of
// them share both. Products of many columns gain nothing: what they wait for is their own weights, or the multipliers.
// Convolutions are products of windows, and their channels are columns. Weights and vectors along the columns are joined
// when compiling (Program::prepack); what follows the sums has to be the same but for these, as it is one epilogue, and the
// results lie in memory alike, as one kernel's vectors run along one dim of both. Nests of strips and chains stay as they
// are: what they pass on never leaves a cache, which is worth more.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion.h"

namespace stridec::schedule {

// Behind layouts, strips and chains.
void join_products(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
