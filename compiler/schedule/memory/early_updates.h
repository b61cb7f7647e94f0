// Moves each update of a state up, to directly after the launches whose results it reads.
//
//   g1 = gradient of w1             g1 = gradient of w1
//   g2 = gradient of w2             w1 = w1 - rate * g1
//   w1 = w1 - rate * g1      ->     g2 = gradient of w2
//   w2 = w2 - rate * g2             w2 = w2 - rate * g2
//
// A training step updates its weights at the end, so that all gradients would be in memory until then. Moved
// up, an update frees its gradient, and reads it while it is in the cache; the same holds for the gradient's
// part of a norm. An update that needs the whole norm, as clipping does, stays. So does a step that reads a
// state's old value, and what frees nothing, such as a generator's update, before which draws can be repeated
// (recompute.h).
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Both leave programs with sizes that depend on data as they are: a run in which such a size does not fit
// fails, and keeps all states.
void update_early(loop::Program& program);
// For targets that run launches at the same time. There, updates at the end of a step run side by side, which
// is faster. So this moves only launches that read much more than they write, such as the sums of a bias's
// gradient. If moving all updates lowers the peak of memory by a tenth or more, it moves all.
void free_early(loop::Program& program);

}  // namespace stridec::schedule
