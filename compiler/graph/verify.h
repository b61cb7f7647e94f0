// What every graph fulfils, checked: ids, order of definitions, regions, declared symbols, and that every
// node's types are what its shape function infers.
#pragma once

#include <string>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"

namespace stridec::graph {

// Everything that is wrong, one sentence each; at most 20.
std::vector<std::string> problems(const Graph& graph, const ShapeTable& shapes);

// Between passes: throws kInternal with the problems and the graph's text.
void verify(const Graph& graph, const ShapeTable& shapes, std::string_view stage);

}  // namespace stridec::graph
