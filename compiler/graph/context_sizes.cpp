#include "compiler/graph/context_sizes.h"

#include <algorithm>

namespace stridec::graph {

bool is_context_size(const Graph& graph, sym::Expr symbol) {
  return std::ranges::any_of(graph.states, [&](const State& state) {
    return std::ranges::any_of(graph[state.value].type.shape,
                               [&](sym::Expr dim) { return sym::depends_on(dim, symbol); });
  });
}

bool is_bound_before_run(const Graph& graph, const Symbol& symbol) {
  return symbol.input >= 0 || is_context_size(graph, symbol.var);
}

}  // namespace stridec::graph
