// Row-wise CSE: computes once per input row what several points of a pointwise nest compute from that row.
//
//   for i, j: y[i,j] = a(i) * f(x[u(i),j], x[u(i),j+1]) + b(i) * f(x[v(i),j], x[v(i),j+1])
//
//   for r, j: t[r,j] = f(x[r,j], x[r,j+1])
//   for i, j: y[i,j] = a(i) * t[u(i),j] + b(i) * t[v(i),j]
//
// Interpolation along several axes becomes separable: one axis after the other. The second nest blends whole
// rows, and the first, which looks up columns, has fewer lookups to do. If there are more input rows than
// lookups, t has one row per lookup instead (an x of 4000 rows resized to 200: 400 rows).
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Runs after layouts are final: t gets the memory order of the nest's result.
void eliminate_common_rows(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
