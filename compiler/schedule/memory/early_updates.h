// Moves updates of states up to just behind what they read.
//
//   g1 = gradient of w1             g1 = gradient of w1
//   g2 = gradient of w2             w1 = w1 - rate * g1
//   w1 = w1 - rate * g1      ->     g2 = gradient of w2
//   w2 = w2 - rate * g2             w2 = w2 - rate * g2
//
// A training step updates its weights at the end, so that all gradients would be in memory until then. Moved
// up, an update frees its gradient, and reads it while it is in the cache. A step that reads the old value
// keeps its place before the update.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void update_early(loop::Program& program);

}  // namespace stridec::schedule
