// Removes what only differentiation reads: stop_gradient and as_softmax, the ties of min and max, and what
// embeddings say of the gradients of rows. Passes and kernels then see the same graph as without them. Runs
// after gradients were taken.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::graph {

// Dead nodes remain: eliminate_dead_code drops them.
void drop_gradient_marks(Graph& graph);

}  // namespace stridec::graph
