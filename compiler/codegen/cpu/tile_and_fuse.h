// One kernel for launches that work in strips (loop::TiledGroup): it calls theirs, one after the other, for each of its strips,
// with what a strip owns in a thread's scratch.
#pragma once

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"

namespace stridec::codegen::cpu {

Kernel emit_tiled_group(const loop::Program& program, const loop::TiledGroup& strips,
                        const CpuTarget& target);

}  // namespace stridec::codegen::cpu
