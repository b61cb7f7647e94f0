#include "compiler/schedule/analysis/access_map.h"

#include <algorithm>

#include "compiler/kernels/contraction.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {
namespace {

using loop::Access;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using sym::Expr;

class AccessMapFinder {
 public:
  AccessMapFinder(const loop::Program& program, const Nest& nest, BufferId buffer, bool stores)
      : nest_(nest), buffer_(buffer), stores_(stores) {
    found_.resize(program[buffer].shape.size());
    sound_.assign(found_.size(), true);
    visit(nest.body, loop::facts_of(program, nest));
  }

  std::vector<std::optional<Along>> found() const {
    std::vector<std::optional<Along>> found = found_;
    for (size_t d = 0; d < found.size(); ++d)
      if (!sound_[d]) found[d] = std::nullopt;
    return found;
  }

 private:
  void visit(const loop::Block& block, sym::Facts facts) {
    for (const loop::Stmt& stmt : block) {
      const Access* access = loop::access_of(stmt);
      if (access && access->buffer == buffer_ && std::holds_alternative<loop::Store>(stmt.node) == stores_)
        look(*access, facts);
      if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) loop::add_facts(facts, *bind);
      if (const loop::Block* body = loop::body_of(stmt)) {
        sym::Facts inner = facts;
        loop::add_facts(inner, stmt);
        visit(*body, inner);
      }
    }
  }

  void look(const Access& access, const sym::Facts& facts) {
    for (size_t d = 0; d < found_.size(); ++d) {
      if (!sound_[d]) continue;
      const auto along = of(sym::simplify(access.index[d], facts), facts);
      sound_[d] = along && (!found_[d] || (found_[d]->var == along->var && found_[d]->scale == along->scale));
      for (size_t other = 0; sound_[d] && other < access.index.size(); ++other)
        sound_[d] = other == d || !sym::depends_on(access.index[other], along->var);
      if (!sound_[d]) continue;
      if (!found_[d]) found_[d] = along;
      found_[d]->low = std::min(found_[d]->low, along->low);
      found_[d]->high = std::max(found_[d]->high, along->high);
    }
  }

  std::optional<Along> of(Expr index, const sym::Facts& facts) const {
    std::optional<Along> along;
    for (const Dim& dim : nest_.dims) {
      if (!sym::depends_on(index, dim.var)) continue;
      const auto linear = along ? std::nullopt : sym::linear_in(index, dim.var);
      const auto scale = linear ? sym::as_const(linear->coefficient) : std::nullopt;
      if (!scale || *scale < 1) return std::nullopt;
      const sym::Interval rest = facts.bounds(linear->rest);
      if (!rest.has_lo() || !rest.has_hi()) return std::nullopt;
      along = Along{dim.var, *scale, rest.lo, rest.hi};
    }
    return along;
  }

  const Nest& nest_;
  BufferId buffer_;
  bool stores_;
  std::vector<std::optional<Along>> found_;
  std::vector<bool> sound_;
};

}  // namespace

std::vector<std::optional<Along>> accesses_along(const loop::Program& program, const Nest& nest,
                                                 BufferId buffer, bool stores) {
  return AccessMapFinder(program, nest, buffer, stores).found();
}

Expr extent_of(const Nest& nest, Expr var) {
  for (const Dim& dim : nest.dims)
    if (dim.var == var) return dim.extent;
  return 0;
}

void sort_as_in_memory(std::vector<loop::Dim>& dims, const loop::Program& program, const loop::Access& access,
                       const sym::Facts& facts) {
  const sym::Expr offset = kernels::offset_of(program, access, facts);
  std::vector<std::pair<sym::Expr, loop::Dim>> steps;
  for (const loop::Dim& dim : dims) {
    const auto linear = sym::linear_in(offset, dim.var);
    if (!linear || sym::has_index(linear->coefficient)) return;
    steps.emplace_back(linear->coefficient, dim);
  }
  for (size_t i = 1; i < steps.size(); ++i)
    for (size_t d = i; d > 0 && facts.holds(sym::gt(steps[d].first, steps[d - 1].first)); --d)
      std::swap(steps[d], steps[d - 1]);
  for (size_t d = 0; d < dims.size(); ++d) dims[d] = steps[d].second;
}

}  // namespace stridec::schedule
