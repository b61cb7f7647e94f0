// Emits the runtime library's routines (loop/library.def) as kernels; sorting has one task per row.
#pragma once

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cpu {

Kernel emit_routine(const loop::Program& program, const loop::Call& call, const CpuTarget& target);

}  // namespace stridec::codegen::cpu
