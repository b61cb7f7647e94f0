// Which nodes of a program compute nothing that anybody reads.
#pragma once

#include <unordered_set>

#include "compiler/frontend/pt2/program.h"

namespace stridec::pt2 {

// A node that writes in place is needed if a needed value shares the storage, or an input of the graph does.
// Higher-order operators, operators without a schema and those without results are always needed.
std::unordered_set<const Node*> dead_nodes(const Graph& graph);

}  // namespace stridec::pt2
