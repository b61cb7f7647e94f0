#include "compiler/schedule/analysis/effects.h"

#include <algorithm>
#include <numeric>

#include "compiler/base/sort.h"
#include "compiler/loop/build.h"
#include "compiler/loop/capacity.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;

void add(std::vector<BufferId>& ids, BufferId id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

// Extends `ranges` by the smallest and largest index along each dim over all accesses to the buffer.
void add_ranges(const loop::Block& block, BufferId id, const sym::Facts& facts,
                std::vector<std::optional<sym::Interval>>& ranges) {
  for (const loop::Stmt& stmt : block) {
    if (const loop::Access* access = loop::access_of(stmt); access && access->buffer == id)
      for (size_t d = 0; d < ranges.size(); ++d) {
        const sym::Interval at = facts.bounds(access->index[d]);
        auto& range = ranges[d];
        range = range ? sym::Interval{std::min(range->lo, at.lo), std::max(range->hi, at.hi)} : at;
      }
    if (const loop::Block* body = loop::body_of(stmt)) {
      sym::Facts inner = facts;
      loop::add_facts(inner, stmt);
      add_ranges(*body, id, inner, ranges);
    }
  }
}

std::vector<std::optional<sym::Interval>> ranges_of(const loop::Program& program, const loop::Nest& nest,
                                                    BufferId id) {
  std::vector<std::optional<sym::Interval>> ranges(program[id].shape.size());
  add_ranges(nest.body, id, loop::facts_of(program, nest), ranges);
  return ranges;
}

}  // namespace

bool are_independent(const Effects& a, const Effects& b) {
  const auto disturbs = [](const Effects& x, const Effects& y) {
    return std::ranges::any_of(x.writes, [&](BufferId id) { return touches(y, id); });
  };
  return !disturbs(a, b) && !disturbs(b, a);
}

bool access_disjoint(const loop::Program& program, const loop::Nest& a, const loop::Nest& b, BufferId id) {
  const auto x = ranges_of(program, a, id), y = ranges_of(program, b, id);
  for (size_t d = 0; d < x.size(); ++d)
    if (x[d] && y[d] && (x[d]->hi < y[d]->lo || y[d]->hi < x[d]->lo)) return true;
  return false;
}

bool may_access_same(const loop::Program& program, const loop::Nest& nest, const loop::Step& step,
                     BufferId id) {
  bool met = false;
  loop::for_each_step({step}, [&](const loop::Step& inner) {
    const Effects effects = effects_of(program, inner);
    const auto* launch = std::get_if<loop::Launch>(&inner.node);
    if (touches(effects, id))
      met = met || !launch || !access_disjoint(program, nest, program[launch->nest], id);
  });
  return met;
}

bool reads(const Effects& effects, BufferId id) {
  return std::find(effects.reads.begin(), effects.reads.end(), id) != effects.reads.end();
}
bool writes(const Effects& effects, BufferId id) {
  return std::find(effects.writes.begin(), effects.writes.end(), id) != effects.writes.end();
}

bool touches(const Effects& effects, BufferId id) { return reads(effects, id) || writes(effects, id); }

Effects effects_of(const loop::Program& program, const loop::Step& step) {
  Effects effects;
  if (const auto* launch = std::get_if<loop::Launch>(&step.node)) effects = effects_of(program[launch->nest]);
  if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node)) effects.reads = {bind->buffer};
  if (const auto* loop = std::get_if<loop::While>(&step.node)) {
    if (loop->condition.valid()) effects.reads = {loop->condition};
    if (const auto capacity = loop::capacity_of(program, *loop))
      for (BufferId id : loop::growing_buffers(program, *capacity))
        add(effects.reads, id), add(effects.writes, id);
  }
  if (const auto* copy = std::get_if<loop::Copy>(&step.node)) effects = {{copy->from}, {copy->to}};
  if (const auto* call = std::get_if<loop::Call>(&step.node)) {
    for (BufferId id : call->reads) add(effects.reads, id);
    for (BufferId id : call->writes) add(effects.writes, id);
  }
  return effects;
}

const loop::Nest* nest_at(const loop::Program& program, const loop::Steps& steps, int at) {
  const auto* launch = std::get_if<loop::Launch>(&steps[static_cast<size_t>(at)].node);
  return launch ? &program[launch->nest] : nullptr;
}

bool is_in_tiled_group(const loop::Program& program, const loop::Nest& nest) {
  for (const loop::TiledGroup* strips : loop::tiled_groups_of(program))
    for (const loop::Step& step : strips->body)
      if (&program[std::get<loop::Launch>(step.node).nest] == &nest) return true;
  return false;
}

std::set<BufferId> fixed_buffers(const loop::Program& program) {
  std::set<BufferId> fixed;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    if (std::holds_alternative<loop::Launch>(step.node)) return;
    const Effects effects = effects_of(program, step);
    fixed.insert(effects.reads.begin(), effects.reads.end());
    fixed.insert(effects.writes.begin(), effects.writes.end());
  });
  return fixed;
}

std::optional<std::vector<size_t>> innermost_first(const loop::Buffer& buffer) {
  std::vector<size_t> order;
  sym::Expr expected = 1;
  while (order.size() < buffer.shape.size()) {
    std::optional<size_t> next;  // a dim of extent 1 comes before another one of the same stride
    for (size_t d = buffer.shape.size(); d-- > 0;)
      if (buffer.strides[d] == expected && std::find(order.begin(), order.end(), d) == order.end() &&
          (!next || (buffer.shape[d].is_const(1) && !buffer.shape[*next].is_const(1))))
        next = d;
    if (!next) return std::nullopt;
    order.push_back(*next);
    expected = expected * buffer.shape[*next];
  }
  return order;
}

std::vector<size_t> declared_order(const loop::Buffer& buffer) {
  if (buffer.strides == loop::row_major(buffer.shape)) return {};
  std::optional<std::vector<size_t>> order = innermost_first(buffer);
  if (!order) return {};
  std::reverse(order->begin(), order->end());
  return *order;
}

std::vector<sym::Expr> dense_strides(const std::vector<sym::Expr>& shape, const std::vector<size_t>& order) {
  std::vector<sym::Expr> strides(shape.size());
  sym::Expr step = 1;
  for (size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = step;
    step = step * shape[order[k]];
  }
  return strides;
}

std::vector<sym::Expr> strides_like(const loop::Buffer& like, const std::vector<sym::Expr>& shape,
                                    const sym::Facts& facts) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  sort_stable(order, [&](size_t a, size_t b) {
    return typical(like.strides[a], facts) > typical(like.strides[b], facts);
  });
  return dense_strides(shape, order);
}

BufferId add_part(loop::Program& program, BufferId of, const std::vector<sym::Expr>& shape) {
  const loop::Buffer& whole = program[of];
  loop::Buffer part{
      .name = whole.name + "_part", .dtype = whole.dtype, .shape = shape, .storage = whole.storage};
  part.strides = strides_like(whole, shape, program.facts);
  return loop::add_buffer(program, std::move(part));
}

sym::Expr extent_in_elements(const loop::Buffer& buffer) {
  if (innermost_first(buffer)) return loop::element_count(buffer.shape);
  sym::Expr last = 0;
  for (size_t d = 0; d < buffer.shape.size(); ++d) last = last + (buffer.shape[d] - 1) * buffer.strides[d];
  return sym::max(0, last + 1);
}

}  // namespace stridec::schedule
