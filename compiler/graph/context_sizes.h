// Sizes of a context: the symbols in the shapes of states. Memory of states is allocated when a context is
// created, so these symbols are bound then, and every run has the same values of them.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::graph {

bool is_context_size(const Graph& graph, sym::Expr symbol);

// Whether the symbol has its value before a run begins: an input or the context determines it.
bool is_bound_before_run(const Graph& graph, const Symbol& symbol);

}  // namespace stridec::graph
