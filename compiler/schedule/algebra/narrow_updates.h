// Restricts in-place additions to the index at which they add something.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   for i: t[i, j] = t[i, j] + (i == k ? g[j] : 0)      ->      t[k, j] = t[k, j] + g[j]
//
// This is how a loop accumulates the gradient of a tensor of which each iteration reads one row: without the
// rule, n iterations would add n^2 rows. `k` is known to be a valid index and depends on no dim of the loop.
void narrow_updates(loop::Program& program);

}  // namespace stridec::schedule
