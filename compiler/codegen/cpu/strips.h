// One kernel for launches that work in strips (loop::Strips): it calls theirs, one after the other, for each of its strips,
// with what a strip owns in a thread's scratch.
#pragma once

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"

namespace stridec::codegen::cpu {

Kernel emit_strips(const loop::Program& program, const loop::Strips& strips, const CpuTarget& target);

}  // namespace stridec::codegen::cpu
