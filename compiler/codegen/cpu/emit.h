// The general loop emitter: compiles every legal nest, following the directives of its schedule
// (schedule/directives/schedule.h).
#pragma once

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cpu {

Kernel emit_loops(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);
// The kernel's Kernel::scratch_bytes.
sym::Expr loops_scratch(const loop::Program& program, const loop::Nest& nest);

}  // namespace stridec::codegen::cpu
