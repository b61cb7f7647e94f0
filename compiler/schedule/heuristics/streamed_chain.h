// Chooses the tiles of chains that stream over blocks of columns (kernels/streamed_chain.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/streamed_chain.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// All tiles that the target's registers and shared memory hold, the default first. Empty, with `reason` set,
// if the nest is not such a chain or no tile fits.
std::vector<kernels::StreamedChainPlan> streamed_chain_plans(const loop::Program& program,
                                                             const loop::Nest& nest, const GpuTarget& target,
                                                             std::string* reason = nullptr);

}  // namespace stridec::schedule
