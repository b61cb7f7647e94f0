#include "compiler/graph/guards.h"

namespace stridec::graph {

void drop_implied_guards(Graph& graph, const sym::Facts& given) {
  constexpr size_t kMost = 64;  // the number of proofs is quadratic
  auto& guards = graph.guards;
  if (guards.size() > kMost) return;
  for (size_t i = guards.size(); i-- > 0;) {
    sym::Facts others = given;
    for (size_t j = 0; j < guards.size(); ++j)
      if (j != i) others.assume(guards[j].condition);
    if (sym::check(guards[i], others) == sym::Answer::kYes)
      guards.erase(guards.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace stridec::graph
