// CUDA kernels run on this machine's CPU: their text compiled by clang, a block's threads as coroutines that meet at
// barriers and shuffles. What a kernel means is tried this way without a GPU; memory models and speed are not.
#pragma once

#include <optional>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/interpret.h"

namespace stridec::test {

// The outputs of a program of nests with schedules for a GPU. Of each nest's choices that its sizes allow, number `choice`
// is taken, or the last; `choices` gets the largest number that there was. Nothing where a nest wants what is not emulated
// (words by warp groups). Throws an Error where a kernel has a race (race_check.h); warp groups and clusters are not looked at
// for these.
std::optional<std::vector<loop::HostTensor>> emulate(const loop::Program& program,
                                                     const std::vector<loop::HostTensor>& inputs,
                                                     const GpuTarget& target, size_t choice, size_t* choices);

}  // namespace stridec::test
