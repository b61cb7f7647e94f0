// Emits one kernel for a tiled group (loop::TiledGroup): for each tile it calls the kernels of the group's
// launches in order, with the tile's own buffers in the thread's scratch.
#pragma once

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"

namespace stridec::codegen::cpu {

Kernel emit_tiled_group(const loop::Program& program, const loop::TiledGroup& strips,
                        const CpuTarget& target);
// The kernel's Kernel::scratch_bytes.
sym::Expr tiled_group_scratch(const loop::Program& program, const loop::TiledGroup& strips,
                              const CpuTarget& target);

}  // namespace stridec::codegen::cpu
