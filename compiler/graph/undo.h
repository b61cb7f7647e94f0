// Removes what a discarded region has added to its graph.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::graph {

// Remembers the symbols and facts of a graph. Calling it removes those added since. Names of long
// sizes stay, since they depend on the inputs alone; the region's nodes stay, but are dead.
class Undo {
 public:
  explicit Undo(Graph& graph) : graph_(graph), symbols_(graph.symbols.size()), facts_(graph.facts) {}
  void operator()() const;

 private:
  Graph& graph_;
  const size_t symbols_;
  const sym::Facts facts_;
};

}  // namespace stridec::graph
