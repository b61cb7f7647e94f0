// What depends on weights alone is computed once, when the model is compiled.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Moves nests that read nothing but weights from the run, its loops and branches to Program::prepack; their results become
// weights.
// Results much larger than what they are made from stay in the run, where fusion usually inlines them, and so does what
// would take minutes.
void hoist_constants(loop::Program& program);

}  // namespace stridec::schedule
