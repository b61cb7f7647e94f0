// Lowers the peak of live memory of a run in little more time, in three ways: depth-first tiles of the chains
// of depth_first_chain.h; a compact copy of the elements that later steps read of a buffer (for example every
// other row and column), which frees the rest (compaction_copy.h); and separate storage for a part of a
// buffer that is computed long before the rest (split_live_range.h).
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

void reduce_peak(loop::Program& program, std::vector<Decision>* decisions = nullptr);

// Why this leaves a chain of these launches (positions among the program's top-level steps) unchanged.
std::string why_peak_stays(const loop::Program& program, const std::vector<int>& at);

}  // namespace stridec::schedule
