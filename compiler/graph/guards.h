// Simplifies the guards of a complete graph.
#pragma once

#include <string>

#include "compiler/graph/graph.h"

namespace stridec::graph {

// Drops each guard that follows from the others and from `given`, the facts about the symbols before the
// first guard. For example, a guard for at most 512 is redundant next to one for at most 256. Of guards that
// imply each other the first one remains.
void drop_implied_guards(Graph& graph, const sym::Facts& given);

// What keeps a guard of a file from being used: "" if it can be. Its sentence has to be one that render()
// knows, and its condition one that some sizes meet.
std::string problem_of_guard(const sym::Guard& guard);

}  // namespace stridec::graph
