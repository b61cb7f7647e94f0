// Finds the dead nodes of a program: their results and effects have no uses.
#pragma once

#include <unordered_set>

#include "compiler/frontend/pt2/program.h"

namespace stridec::pt2 {

// A node that writes in place is live if a live value or an input of the graph shares the storage.
// Higher-order operators, operators without a schema and operators without results are always live, and with
// `keep_draws` random draws.
std::unordered_set<const Node*> dead_nodes(const Graph& graph, bool keep_draws);

}  // namespace stridec::pt2
