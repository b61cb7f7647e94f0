// Where the buffers that a tiled group keeps to itself lie in a thread's scratch.
#pragma once

#include "compiler/loop/program.h"
#include "compiler/schedule/memory/arena.h"

namespace stridec::schedule {

// Where in a strip's memory each of its own buffers lies: those that are not in use together share memory.
ArenaPlan own_memory(const loop::Program& program, const loop::TiledGroup& strips);

}  // namespace stridec::schedule
