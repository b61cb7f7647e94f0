#include "compiler/loop/context_sizes.h"

#include <algorithm>

namespace stridec::loop {

bool is_context_size(const Program& program, sym::Expr symbol) {
  return std::ranges::any_of(program.states, [&](BufferId state) {
    return std::ranges::any_of(program[state].shape,
                               [&](sym::Expr dim) { return sym::depends_on(dim, symbol); });
  });
}

bool is_bound_before_run(const Program& program, const Symbol& symbol) {
  return symbol.input >= 0 || is_context_size(program, symbol.var);
}

std::vector<sym::Expr> context_sizes(std::span<const Program* const> programs) {
  std::vector<sym::Expr> sizes;
  for (const Program* program : programs)
    for (const Symbol& symbol : program->symbols)
      if (is_context_size(*program, symbol.var) && std::ranges::find(sizes, symbol.var) == sizes.end())
        sizes.push_back(symbol.var);
  return sizes;
}

}  // namespace stridec::loop
