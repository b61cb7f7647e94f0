// Places barriers between top-level statements where threads touch what other threads have touched.
#include <algorithm>

#include "compiler/codegen/cuda/reduction/cooperative_emitter.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cuda {

std::vector<CooperativeEmitter::Touch> CooperativeEmitter::touches(const loop::Stmt& top) {
  std::vector<Touch> out;
  sym::Facts inside = facts_;
  loop::for_each_stmt({top}, [&](const loop::Stmt& stmt) {
    for (const loop::Dim& dim : loop::dims_of(stmt)) inside.set_index(dim.var, dim.extent);
    if (const auto* bind = std::get_if<loop::Bind>(&stmt.node)) inside.set_index(bind->var, bind->extent);
  });
  const auto add = [&](const loop::Stmt& stmt, const std::string& place) {
    const loop::Access* access = loop::access_of(stmt);
    if (!access || passed_.contains(access->buffer) || of_round_.contains(access->buffer) ||
        same_.contains(access->buffer))
      return;
    Touch touch{access->buffer, std::holds_alternative<loop::Store>(stmt.node), place, {}, {}};
    touch.offset = inside.bounds(loop::offset_of(program, *access));
    bool within = true;
    for (size_t d = 0; d < access->index.size(); ++d) {
      const sym::Expr index = access->index[d];
      touch.box.push_back(inside.bounds(index));
      within = within && inside.holds(sym::ge(index, 0)) &&
               inside.holds(sym::lt(index, program[access->buffer].shape[d]));
    }
    if (!within) touch.box.clear();
    out.push_back(std::move(touch));
  };
  const loop::Block* block = loop::body_of(top);
  if (!is_range(top)) {
    add(top, "");
    if (block) loop::for_each_stmt(*block, [&](const loop::Stmt& stmt) { add(stmt, ""); });
    return out;
  }
  const Range range = range_of(top);
  for (const loop::Stmt& stmt : *block) {
    const loop::Access* access = loop::access_of(stmt);
    add(stmt, access ? place_of(range, *access) : "");
    if (const loop::Block* inner = loop::body_of(stmt))
      loop::for_each_stmt(*inner, [&](const loop::Stmt& s) { add(s, ""); });
  }
  return out;
}

bool CooperativeEmitter::apart(const Touch& a, const Touch& b) {
  const auto disjoint = [](const sym::Interval& x, const sym::Interval& y) {
    return (x.has_hi() && y.has_lo() && x.hi < y.lo) || (y.has_hi() && x.has_lo() && y.hi < x.lo);
  };
  for (size_t d = 0; d < a.box.size() && d < b.box.size(); ++d)
    if (disjoint(a.box[d], b.box[d])) return true;
  return disjoint(a.offset, b.offset);
}

// What is read after a store may belong to another iteration. Otherwise the same iterations are executed by
// the same thread.
bool CooperativeEmitter::meet(const Touch& a, const Touch& b) {
  if (a.buffer != b.buffer || (!a.store && !b.store) || apart(a, b)) return false;
  return (a.store && !b.store) || a.place.empty() || a.place != b.place;
}

void CooperativeEmitter::synchronise_before(size_t at, size_t last) {
  if (touched_.empty())
    for (const loop::Stmt& top : nest.body) touched_.push_back(touches(top));
  const auto meets = [](const std::vector<Touch>& before, const std::vector<Touch>& after) {
    return std::any_of(before.begin(), before.end(), [&](const Touch& a) {
      return std::any_of(after.begin(), after.end(), [&](const Touch& b) { return meet(a, b); });
    });
  };
  for (size_t before = synchronised_; before < at; ++before)
    for (size_t after = at; after < last; ++after)
      if (meets(touched_[before], touched_[after])) {
        barrier();
        synchronised_ = at;
        return;
      }
}

}  // namespace stridec::codegen::cuda
