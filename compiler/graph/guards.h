// Simplifies the guards of a complete graph.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::graph {

// Drops each guard that follows from the others and from `given`, the facts about the symbols before the
// first guard. For example, a guard for at most 512 is redundant next to one for at most 256. Of guards that
// imply each other the first one remains.
void drop_implied_guards(Graph& graph, const sym::Facts& given);

}  // namespace stridec::graph
