// Chains of depth_first_chain.h work by strips of rows where that takes less time: what passes is no longer written to memory behind a
// thread's cache and read back, little is computed twice, and weights are read again for each strip. Others stay as they are.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

void lower_traffic(loop::Program& program, std::vector<Decision>* decisions = nullptr);

// Why a chain of these launches, positions among the program's top steps, would not be faster; empty: it would be.
std::string slower(const loop::Program& program, const std::vector<int>& at);

}  // namespace stridec::schedule
