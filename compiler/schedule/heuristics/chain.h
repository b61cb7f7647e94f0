// Which register tiles, blocks of rows and loops a chain (kernels/chain.h) runs with: an analytical model.
#pragma once

#include <vector>

#include "compiler/base/target.h"
#include "compiler/kernels/chain.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

struct RankedChainPlan {
  kernels::ChainPlan plan;
  double cycles;  // of one core, for symbols at a typical size
};

// The plans that can run the nest, best first; none where it is no chain of two or more contractions, or where the
// target has no micro-kernel for one of them.
std::vector<RankedChainPlan> chain_space(const loop::Program& program, const loop::Nest& nest,
                                         const CpuTarget& target);

}  // namespace stridec::schedule
