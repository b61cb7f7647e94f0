// Loops over dims that were taken apart for one operation become loops over what they were.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   nest (%b, %w<64, ...)  store t[%b, %w, ...] f(x[64*%b + %w, ...], mask[%w, ...])
//   nest (%i<64*batch, ...)  load t[%i//64, mod(%i, 64), ...]
//   ->  nest (%i<64*batch, ...)  store t[%i, ...] f(x[%i, ...], mask[mod(%i, 64), ...])
//       nest (%i<64*batch, ...)  load t[%i, ...]
//
// What is added to every batch of windows, say, is added between two products over all windows, which share dims then.
// Arena buffers that one pointwise nest stores and whose readers all put two neighbouring dims together again; the last dim,
// along which memory is contiguous, stays as it is.
void flatten(loop::Program& program);

}  // namespace stridec::schedule
