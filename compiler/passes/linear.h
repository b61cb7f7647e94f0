// Operators that are linear in each input, and how the dims of the inputs map to dims of the result.
#pragma once

#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::passes {

// For each dim of the result the dim of input `side` that it comes from, -1 for none. dot_general: batch
// dims, free dims of a, free dims of b. conv and conv_transpose: the output channels of the weights, and the
// batch of the data.
std::vector<int64_t> dims_in_result(const graph::Graph& graph, const graph::Node& node, size_t side);

}  // namespace stridec::passes
