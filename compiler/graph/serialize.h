// The serialized graph: a .graph file, as schemas/graph.proto describes it.
#pragma once

#include <functional>
#include <string>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"

namespace stridec::graph {

// Writes the file piece by piece, in order.
using Sink = std::function<void(const uint8_t* bytes, size_t size)>;
void serialize(const Graph& graph, const Sink& sink);

bool is_serialized(const uint8_t* bytes, size_t size);  // begins as such a file does

// `file` is all of it, mapped or owned: constants point into it and keep it alive. Throws Error kMalformed,
// code "bad-graph", on anything that a writer of graphs would not have written.
Graph deserialize(const Data& file, const ShapeTable& shapes);

}  // namespace stridec::graph
