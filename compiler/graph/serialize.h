// Reads and writes serialized graphs: .graph files, described by schemas/graph.proto.
#pragma once

#include <functional>
#include <string>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"

namespace stridec::graph {

// Writes the file piece by piece, in order.
using Sink = std::function<void(const uint8_t* bytes, size_t size)>;
void serialize(const Graph& graph, const Sink& sink);

bool is_serialized(const uint8_t* bytes, size_t size);  // checks the start of the file

// `file` is the whole file, mapped or owned. Constants point into it and keep it alive. Throws Error
// kMalformed, code "bad-graph", on anything that the writer would not produce.
Graph deserialize(const Data& file, const ShapeTable& shapes);

}  // namespace stridec::graph
