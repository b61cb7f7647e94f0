// The passes on the loop program, in order: those for every target, then those for CPUs and those for GPUs.
#pragma once

#include <span>

#include "compiler/base/pass.h"

namespace stridec::schedule {

std::span<const Pass> loop_passes();
std::span<const Pass> cpu_loop_passes();
std::span<const Pass> cpu_passes();
// Memory is planned when it is known how much scratch each kernel needs.
std::span<const Pass> cpu_memory_passes();
std::span<const Pass> gpu_loop_passes();
std::span<const Pass> gpu_passes();

// Runs rows on one program and verifies it after each: for programs that no pipeline holds.
void run_passes(std::span<const Pass> rows, loop::Program& program, const PassContext& context);

}  // namespace stridec::schedule
