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

UserCounts user_counts(const loop::Program& program) {
  UserCounts counts;
  loop::for_each_step(program.steps,
                      [&](const loop::Step& step) { counts.add(effects_of(program, step), 1); });
  return counts;
}

void UserCounts::add(const Effects& effects, int by) {
  const auto count = [&](std::vector<int>& counts, BufferId id) {
    const auto at = static_cast<size_t>(id.value);
    if (at >= counts.size()) counts.resize(at + 1, 0);
    counts[at] += by;
  };
  for (BufferId id : effects.reads) count(readers_, id);
  for (BufferId id : effects.writes) count(writers_, id);
}

Flow::Flow(const loop::Program& program, const loop::Steps& steps, Erased leaves)
    : counts_(user_counts(program)), leaves_(leaves) {
  users_.resize(program.buffers.size());
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
    if (!bound_by(step).empty()) binders_.push_back(size());
    keys_.push_back(size());
    slots_.push_back({std::move(all), next_stamp_++});
    enter(size() - 1);
  }
}

std::vector<int> Flow::positions(const Keys& keys, int first, int last) const {
  std::vector<int> out;
  if (first + 1 >= last) return out;
  auto key = first < 0 ? keys.begin() : std::ranges::upper_bound(keys, keys_[static_cast<size_t>(first)]);
  auto at = keys_.begin() + (first + 1);
  for (; key != keys.end(); ++key) {
    at = std::lower_bound(at, keys_.end(), *key);
    if (at - keys_.begin() >= last) break;
    out.push_back(static_cast<int>(at - keys_.begin()));
  }
  return out;
}

std::vector<int> Flow::writers_between(BufferId id, int first, int last) const {
  const auto at = static_cast<size_t>(id.value);
  return at < users_.size() ? positions(users_[at].writers, first, last) : std::vector<int>{};
}
std::vector<int> Flow::readers_between(BufferId id, int first, int last) const {
  const auto at = static_cast<size_t>(id.value);
  return at < users_.size() ? positions(users_[at].readers, first, last) : std::vector<int>{};
}
std::vector<int> Flow::binders_between(int first, int last) const { return positions(binders_, first, last); }

Flow::Users& Flow::users_of(BufferId id) {
  const auto at = static_cast<size_t>(id.value);
  if (at >= users_.size()) users_.resize(at + 1);
  return users_[at];
}

void Flow::enter(int at) {
  const int64_t key = keys_[static_cast<size_t>(at)];
  const auto insert = [&](Keys& keys) { keys.insert(std::ranges::lower_bound(keys, key), key); };
  for (BufferId id : effects(at).reads) insert(users_of(id).readers);
  for (BufferId id : effects(at).writes) insert(users_of(id).writers);
}

void Flow::leave(int at) {
  const int64_t key = keys_[static_cast<size_t>(at)];
  const auto remove = [&](Keys& keys) { keys.erase(std::ranges::lower_bound(keys, key)); };
  for (BufferId id : effects(at).reads) remove(users_of(id).readers);
  for (BufferId id : effects(at).writes) remove(users_of(id).writers);
}

void Flow::replace(int at, Effects effects) {
  leave(at);
  Slot& now = slots_[slot_of(at)];
  counts_.add(now.effects, -1);
  now = {std::move(effects), next_stamp_++};
  counts_.add(now.effects, 1);
  enter(at);
}

int Flow::erase(loop::Steps& steps, int at) {
  leave(at);
  counts_.add(effects(at), -1);
  const auto key = keys_.begin() + at;
  std::erase(binders_, *key);
  slots_[slot_of(at)] = {.effects = {}, .stamp = 0, .gone = true};
  if (leaves_ == Erased::kPlace) return 0;
  keys_.erase(key);
  steps.erase(steps.begin() + at);
  return 1;
}

void Flow::close_gaps(loop::Steps& steps) {
  size_t next = 0;
  for (size_t at = 0; at < steps.size(); ++at) {
    if (is_gap(static_cast<int>(at))) continue;
    if (next != at) steps[next] = std::move(steps[at]);
    keys_[next++] = keys_[at];
  }
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(next), steps.end());
  keys_.resize(next);
}

void Flow::move(int from, int to) {
  // Each step takes the key of its new position.
  const int first = std::min(from, to), last = std::max(from, to), by = from < to ? 1 : -1;
  for (int at = first; at <= last; ++at) leave(at);
  Slot moved = std::move(slots_[slot_of(from)]);
  for (int at = from; at != to; at += by) slots_[slot_of(at)] = std::move(slots_[slot_of(at + by)]);
  slots_[slot_of(to)] = std::move(moved);
  for (int at = first; at <= last; ++at) enter(at);
}

int writer_before(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int at,
                  BufferId id) {
  const std::vector<int> writers = flow.writers_between(id, -1, at);
  return !writers.empty() && nest_at(program, steps, writers.back()) ? writers.back() : -1;
}

bool made_once(const loop::Program& program, const Flow& flow, BufferId id) {
  return program[id].storage == loop::Storage::kArena && flow.writer_count(id) == 1;
}

bool passes_once(const loop::Program& program, const Flow& flow, BufferId id) {
  return made_once(program, flow, id) && flow.reader_count(id) == 1;
}

bool may_move(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int from, int to,
              const std::vector<int>& with) {
  const Effects& moved = flow.effects(from);
  const loop::Nest& nest = program[std::get<loop::Launch>(steps[from].node).nest];
  for (const int at : flow.binders_between(to, from))
    for (sym::Expr symbol : bound_by(steps[at]))
      if (uses_symbol(program, nest, symbol)) return false;
  const int first = std::min(from, to), last = std::max(from, to);
  const auto meets = [&](const std::vector<int>& others, BufferId id) {
    return std::ranges::any_of(others, [&](int at) {
      return std::ranges::count(with, at) == 0 && may_access_same(program, nest, steps[at], id);
    });
  };
  for (BufferId id : moved.writes)
    if (meets(flow.writers_between(id, first, last), id) || meets(flow.readers_between(id, first, last), id))
      return false;
  for (BufferId id : moved.reads)
    if (meets(flow.writers_between(id, first, last), id)) return false;
  return true;
}

}  // namespace stridec::schedule
