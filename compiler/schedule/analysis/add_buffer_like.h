// Buffers for what is computed a second time.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Adds a buffer of the type and layout of another one, for the results of a repetition. It is local to a nest
// if the other one is, and otherwise in the arena.
loop::BufferId add_buffer_like(loop::Program& program, loop::BufferId of);

}  // namespace stridec::schedule
