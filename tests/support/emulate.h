// Runs CUDA kernels on the CPU, to test their results without a GPU. clang compiles the kernel text; a
// block's threads are coroutines that switch at barriers and shuffles. Memory models and speed are not
// emulated.
#pragma once

#include <optional>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/interpret.h"

namespace stridec::test {

// Runs a program of nests with GPU schedules and returns its outputs. Each nest uses candidate number
// `choice` of those that its sizes allow, or its last one; `choices` receives the largest number of
// candidates. Returns none if a nest needs what is not emulated (packed weights with warp groups). Throws an
// Error if a kernel has a race (race_check.h); kernels with warp groups or clusters are not checked for
// races.
std::optional<std::vector<loop::HostTensor>> emulate(const loop::Program& program,
                                                     const std::vector<loop::HostTensor>& inputs,
                                                     const GpuTarget& target, size_t choice, size_t* choices);

// Runs a kernel whose parameters are all words, on so many blocks. Throws an Error if it has a race.
void emulate_launch(const codegen::DeviceKernel& kernel, unsigned blocks, const int64_t* words);

}  // namespace stridec::test
