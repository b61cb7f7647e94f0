// Places the buffers that a tiled group owns in a thread's scratch.
#pragma once

#include "compiler/loop/program.h"
#include "compiler/schedule/memory/arena.h"

namespace stridec::schedule {

// Offsets of the group's own buffers within the memory of one tile; buffers that are not live together share
// memory.
ArenaPlan own_memory(const loop::Program& program, const loop::TiledGroup& strips);

}  // namespace stridec::schedule
