// Fuses chains of depth_first_chain.h where that takes less time. Intermediates are no longer written to
// memory beyond a thread's cache and read back; in return some rows are recomputed and each tile reads the
// weights again.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

void lower_traffic(loop::Program& program, std::vector<Decision>* decisions = nullptr);

// Why fusing the chain of these launches (positions among the program's top-level steps) would not be faster;
// empty if it would.
std::string slower(const loop::Program& program, const std::vector<int>& at);

}  // namespace stridec::schedule
