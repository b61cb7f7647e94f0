// Operators that are linear in each of their inputs, and how dims of the inputs lie in the result.
#pragma once

#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::passes {

// Which dim of input `side` each dim of the result runs along, -1 for none. Of dot_general: batch dims, free dims of
// a, free dims of b. Of conv and conv_transpose: the weights' output channels, and the data's batch.
std::vector<int64_t> dims_in_result(const graph::Graph& graph, const graph::Node& node, size_t side);

}  // namespace stridec::passes
