// Keeps a run's arena within --activation-memory-budget (schedule/memory/recompute.h).
#pragma once

#include <string>
#include <string_view>

#include "compiler/compilation.h"
#include "compiler/schedule/memory/recompute.h"

namespace stridec {

// "0.5", "1", "0", or bytes: "800MB", "2GiB", "65536B". Throws a usage Error.
schedule::MemoryBudget parse_memory_budget(std::string_view text);
std::string to_string(const schedule::MemoryBudget& budget);

// On the CPU or GPU variants of all functions. A context has the arena of its largest function: a budget that
// is a share applies to that one, and the others recompute only what does not fit into the same arena. Throws
// an Error where a budget in bytes is out of reach, or where sizes are open.
void recompute_for_cpu(Compilation& made, const schedule::MemoryBudget& budget);
void recompute_for_gpu(Compilation& made, const schedule::MemoryBudget& budget);

}  // namespace stridec
