// Verifies the invariants of a graph: ids, order of definitions, regions, declared symbols, and that every
// node's types equal what its shape function infers.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"

namespace stridec::graph {

// All problems found, one sentence each; at most 20. For graphs that others wrote: branches have the sizes of
// their node's results, provably.
std::vector<std::string> problems(const Graph& graph, const ShapeTable& shapes);

// For use between passes: throws kInternal with the problems and the text of the graph.
void verify(const Graph& graph, const ShapeTable& shapes, std::string_view stage);

}  // namespace stridec::graph
