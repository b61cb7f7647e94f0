// The passes on the graph, in order: what is known about tensors alone, before there are loops.
#pragma once

#include "compiler/base/pass.h"
#include "compiler/graph/graph.h"

namespace stridec::passes {

const PassList<graph::Graph>& graph_passes();
// With the dtype of factors of products that --precision asks for.
const PassList<graph::Graph, DType>& precision_passes();

}  // namespace stridec::passes
