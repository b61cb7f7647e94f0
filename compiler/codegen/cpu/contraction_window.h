// Convolutions with few channels per group (depthwise) on the CPU, by a plan (kernels/window_plan.h).
#pragma once

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cpu {

// The nest's schedule is a kernels::WindowPlan and its weights are packed. window_scratch: the kernel's
// Kernel::scratch_bytes.
Kernel emit_window(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);
sym::Expr window_scratch(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target);

}  // namespace stridec::codegen::cpu
