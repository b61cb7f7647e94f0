// The passes on the loop program, in order: those for every target, then those for CPUs and those for GPUs.
#pragma once

#include <span>

#include "compiler/base/pass.h"

namespace stridec::schedule {

std::span<const Pass> loop_passes();
std::span<const Pass> cpu_loop_passes();
std::span<const Pass> cpu_passes();
// Memory is planned when it is known how much scratch each kernel needs (PassContext::scratch).
std::span<const Pass> cpu_memory_passes();
std::span<const Pass> gpu_loop_passes();
std::span<const Pass> gpu_passes();
std::span<const Pass> gpu_memory_passes();

// Runs a pass that is an OnProgram, and removes the dead nests and buffers that it leaves.
void run_on_program(const Pass& pass, loop::Program& program, const PassContext& context);
// Runs the passes for a CPU up to its schedules with default options, and verifies the program after each:
// for a program that no pipeline holds. Copies, kernels and memory are the caller's.
void run_cpu_passes(loop::Program& program, const CpuTarget& target);

}  // namespace stridec::schedule
