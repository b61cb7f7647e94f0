#include "compiler/schedule/analysis/typical.h"

#include <algorithm>

#include "compiler/loop/walk.h"

namespace stridec::schedule {

using sym::Expr;

int64_t typical_size(const sym::Interval& range) {
  const int64_t lo = range.has_lo() ? range.lo : 1;
  const int64_t hi = range.has_hi() ? range.hi : 2 * kTypicalSize;
  return std::clamp<int64_t>(lo + (hi - lo) / 2, lo, std::max(lo, kTypicalSize));
}

double typical(Expr e, const sym::Facts& facts) {
  const auto value =
      sym::evaluate(e, [&](Expr var) -> std::optional<int64_t> { return typical_size(facts.bounds(var)); });
  return value ? static_cast<double>(*value) : static_cast<double>(kTypicalSize);
}

double typical_bytes(const loop::Program& program, loop::BufferId id) {
  return typical(loop::element_count(program[id].shape), program.facts) * byte_size(program[id].dtype);
}

double typical_points(const std::vector<loop::Dim>& dims, const sym::Facts& facts) {
  double count = 1;
  for (const loop::Dim& dim : dims) count *= std::max(1.0, typical(dim.extent, facts));
  return count;
}

double longest_loops(const loop::Block& block,
                     const std::function<double(const std::vector<loop::Dim>&)>& points) {
  double longest = 1;
  for (const loop::Stmt& stmt : block)
    if (const loop::Block* body = loop::body_of(stmt))
      longest = std::max(longest, points(loop::dims_of(stmt)) * longest_loops(*body, points));
  return longest;
}

}  // namespace stridec::schedule
