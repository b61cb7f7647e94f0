// Flattens neighbouring dims that were split for one operation back into one dim.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   nest (%b, %w<64, ...)  store t[%b, %w, ...] f(x[64*%b + %w, ...], mask[%w, ...])
//   nest (%i<64*batch, ...)  load t[%i//64, mod(%i, 64), ...]
//   ->  nest (%i<64*batch, ...)  store t[%i, ...] f(x[%i, ...], mask[mod(%i, 64), ...])
//       nest (%i<64*batch, ...)  load t[%i, ...]
//
// Example: an addition to every batch of windows is between two GEMMs over all windows; afterwards all
// three share their dims. Applies to arena buffers that one pointwise nest stores and whose readers all
// combine the same two neighbouring dims. The last dim, which is contiguous in memory, is not merged.
void flatten(loop::Program& program);

}  // namespace stridec::schedule
