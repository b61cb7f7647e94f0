// Lowers the most that is alive at once during a run, in little more time: chains of row_chain.h work by strips of rows; a copy
// of what later steps read of a buffer, every other row and column say, lets go of the rest (compaction_copy.h); and a part that is
// made long before the rest of its buffer lives by itself until then (split_live_range.h).
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

void reduce_peak(loop::Program& program, std::vector<Decision>* decisions = nullptr);

// Why that leaves a chain of these launches, positions among the program's top steps, as it is.
std::string why_peak_stays(const loop::Program& program, const std::vector<int>& at);

}  // namespace stridec::schedule
