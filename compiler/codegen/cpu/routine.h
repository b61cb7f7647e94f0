// Emits the runtime library's routines (loop/library.def) as kernels; sorting has one task per row.
#pragma once

#include <span>
#include <string_view>

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cpu {

// There is one for each row of loop/library.def.
struct Routine {
  std::string_view name;
  Kernel (*emit)(const loop::Program& program, const loop::Call& call, const CpuTarget& target);
};
std::span<const Routine> routines();

// The call's kernel: a row's, or the user's (loop/user_kernel.h).
Kernel emit_routine(const loop::Program& program, const loop::Call& call, const CpuTarget& target);
// The kernel's Kernel::scratch_bytes.
sym::Expr routine_scratch(const loop::Program& program, const loop::Call& call, const CpuTarget& target);

}  // namespace stridec::codegen::cpu
