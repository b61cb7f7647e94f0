// What several points of a pointwise nest compute from the same row of what they read, computed once for each row.
//
//   for i, j: y[i,j] = a(i) * f(x[u(i),j], x[u(i),j+1]) + b(i) * f(x[v(i),j], x[v(i),j+1])
//
//   for r, j: t[r,j] = f(x[r,j], x[r,j+1])
//   for i, j: y[i,j] = a(i) * t[u(i),j] + b(i) * t[v(i),j]
//
// Interpolation along several axes becomes interpolation along one after the other: its second nest blends whole rows, and the
// first, which looks columns up, has fewer of them to do. Where there are more rows than points look at, t has a row
// for each look instead (x of 4000 rows shown in 200: 400 rows).
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Layouts are final: t lies in memory as the nest's result does.
void eliminate_common_rows(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
