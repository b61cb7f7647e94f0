// The guards of a finished graph.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::graph {

// Drops each guard that follows from the others and from `given`, what was known of the symbols before the first guard:
// a node that needs at most 512 says nothing beside one that needs at most 256. Of guards that imply each other the
// first stays.
void drop_implied_guards(Graph& graph, const sym::Facts& given);

}  // namespace stridec::graph
