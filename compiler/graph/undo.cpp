#include "compiler/graph/undo.h"

#include <algorithm>
#include <utility>

#include "compiler/graph/long_sizes.h"

namespace stridec::graph {

void Undo::operator()() const {
  const sym::Facts discarded = std::exchange(graph_.facts, facts_);
  const auto first = graph_.symbols.begin() + static_cast<ptrdiff_t>(symbols_);
  graph_.symbols.erase(std::remove_if(first, graph_.symbols.end(),
                                      [&](const Symbol& s) { return !is_size_name(graph_, s.var); }),
                       graph_.symbols.end());
  for (size_t s = symbols_; s < graph_.symbols.size(); ++s) {
    const sym::Expr name = graph_.symbols[s].var;
    const sym::Interval range = discarded.bounds(name);
    graph_.facts.set_range(name, range.lo, range.hi);
    if (const int64_t divisor = discarded.known_divisor(name); divisor > 1)
      graph_.facts.set_divisible(name, divisor);
  }
}

}  // namespace stridec::graph
