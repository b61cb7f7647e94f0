#include "compiler/loop/capacity.h"

#include <algorithm>

#include "compiler/loop/context_sizes.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {

std::optional<sym::Expr> capacity_of(const Program& program, const While& loop) {
  const sym::Expr trips = loop.trip_count;
  if (!trips.is_var()) return std::nullopt;
  bool free = std::ranges::none_of(
      program.symbols, [&](const Symbol& s) { return s.var == trips && is_bound_before_run(program, s); });
  for_each_step(program.steps, [&](const Step& step) {
    if (const auto* bind = std::get_if<BindSymbol>(&step.node)) free = free && bind->symbol != trips;
    if (const auto* other = std::get_if<While>(&step.node))
      free = free && other->counter != trips && other->iterations != trips;
  });
  return free ? std::optional(trips) : std::nullopt;
}

std::vector<sym::Expr> capacities_of(const Program& program, const Steps& steps) {
  std::vector<sym::Expr> out;
  for (const Step& step : steps)
    if (const auto* loop = std::get_if<While>(&step.node))
      if (const auto capacity = capacity_of(program, *loop)) out.push_back(*capacity);
  return out;
}

std::vector<BufferId> growing_buffers(const Program& program, sym::Expr capacity) {
  std::vector<BufferId> out;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    if (b.storage == Storage::kArena &&
        std::ranges::any_of(b.shape, [&](sym::Expr dim) { return sym::depends_on(dim, capacity); }))
      out.push_back(BufferId(i));
  }
  return out;
}

}  // namespace stridec::loop
