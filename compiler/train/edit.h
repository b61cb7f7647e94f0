// Changes to a graph that is there already.
#pragma once

#include <map>

#include "compiler/graph/graph.h"

namespace stridec::train {

// Redirects every use of a value to another one.
void redirect(graph::Graph& graph, const std::map<graph::ValueId, graph::ValueId>& to);

// Numbers the nodes in the order in which they run, a node's regions before it, as a Builder creates them:
// differentiation follows these numbers. Builders of the graph that have added nodes are invalid afterwards.
void number_in_order(graph::Graph& graph);

}  // namespace stridec::train
