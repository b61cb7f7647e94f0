#include "compiler/schedule/analysis/flow.h"

#include <algorithm>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::schedule {

using loop::BufferId;

namespace {

// Symbols that the step binds.
std::vector<sym::Expr> bound_by(const loop::Step& step) {
  if (const auto* bind = std::get_if<loop::BindSymbol>(&step.node)) return {bind->symbol};
  if (const auto* loop = std::get_if<loop::While>(&step.node)) {
    if (loop->trip_count.is_var()) return {loop->iterations, loop->trip_count};  // it may be a capacity
    return {loop->iterations};
  }
  return {};
}

bool uses_symbol(const loop::Program& program, const loop::Nest& nest, sym::Expr symbol) {
  const auto has = [&](sym::Expr e) { return sym::depends_on(e, symbol); };
  bool used =
      std::any_of(nest.dims.begin(), nest.dims.end(), [&](const loop::Dim& dim) { return has(dim.extent); });
  loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
    loop::for_each_expr(stmt, [&](sym::Expr e) { used = used || has(e); });
    if (const loop::Access* access = loop::access_of(stmt))
      for (sym::Expr size : program[access->buffer].shape) used = used || has(size);
  });
  return used;
}

}  // namespace

Flow make_flow(const loop::Program& program, const loop::Steps& steps) {
  Flow flow;
  flow.total_readers.assign(program.buffers.size(), 0);
  flow.total_writers.assign(program.buffers.size(), 0);
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const Effects effects = effects_of(program, step);
    for (BufferId id : effects.reads) ++flow.total_readers[id.value];
    for (BufferId id : effects.writes) ++flow.total_writers[id.value];
  });
  for (const auto& step : steps) {
    Effects all;
    loop::for_each_step({step}, [&](const loop::Step& inner) {
      const Effects effects = effects_of(program, inner);
      for (BufferId id : effects.reads)
        if (!reads(all, id)) all.reads.push_back(id);
      for (BufferId id : effects.writes)
        if (!writes(all, id)) all.writes.push_back(id);
      all.updates = all.updates || effects.updates;
    });
    flow.effects.push_back(std::move(all));
  }
  return flow;
}

int writer_before(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int at,
                  BufferId id) {
  while (--at >= 0)
    if (writes(flow.effects[at], id)) return nest_at(program, steps, at) ? at : -1;
  return -1;
}

bool made_once(const loop::Program& program, const Flow& flow, BufferId id) {
  return program[id].storage == loop::Storage::kArena && flow.total_writers[id.value] == 1;
}

bool passes_once(const loop::Program& program, const Flow& flow, BufferId id) {
  return made_once(program, flow, id) && flow.total_readers[id.value] == 1;
}

bool may_move(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int from, int to,
              const std::vector<int>& with) {
  const Effects& moved = flow.effects[from];
  const loop::Nest& nest = program[std::get<loop::Launch>(steps[from].node).nest];
  for (int at = to + 1; at < from; ++at)
    for (sym::Expr symbol : bound_by(steps[at]))
      if (uses_symbol(program, nest, symbol)) return false;
  for (int at = std::min(from, to) + 1; at < std::max(from, to); ++at) {
    if (std::find(with.begin(), with.end(), at) != with.end()) continue;
    const Effects& other = flow.effects[at];
    for (BufferId id : moved.writes)
      if (touches(other, id) && may_access_same(program, nest, steps[at], id)) return false;
    for (BufferId id : moved.reads)
      if (writes(other, id) && may_access_same(program, nest, steps[at], id)) return false;
  }
  return true;
}

}  // namespace stridec::schedule
