// Computes at compile time whatever depends on weights alone.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Moves nests that read only weights out of the run, its loops and its branches to Program::prepack; their
// results become weights. Results much larger than their inputs stay in the run, where fusion usually inlines
// them. Nests that would take minutes at compile time stay as well.
void hoist_constants(loop::Program& program);

}  // namespace stridec::schedule
