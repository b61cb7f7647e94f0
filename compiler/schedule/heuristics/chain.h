// Chooses the register tiles, row blocks and loops of a chain (kernels/chain.h) by an analytical model.
#pragma once

#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/chain.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

struct RankedChainPlan {
  kernels::ChainPlan plan;
  double cycles;  // of one core, symbols at typical sizes
};

// The plans that can run the nest, best first. Empty if it is not a chain of two or more contractions or the
// target lacks a micro-kernel for one of them.
std::vector<RankedChainPlan> chain_space(const loop::Program& program, const loop::Nest& nest,
                                         const CpuTarget& target);

}  // namespace stridec::schedule
