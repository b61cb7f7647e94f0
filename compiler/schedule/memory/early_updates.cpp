#include "compiler/schedule/memory/early_updates.h"

#include <algorithm>
#include <set>

#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

constexpr double kSmall = 1024;  // bytes

// Which launches update states, and which compute nothing but small operands of these, such as a step size.
std::vector<bool> find_updates(const loop::Program& program, const loop::Steps& steps, const Flow& flow) {
  std::vector<bool> out(steps.size());
  std::set<loop::BufferId> operands;  // of those found
  for (int at = flow.size(); at-- > 0;) {
    const Effects& effects = flow.effects(at);
    if (!nest_at(program, steps, at) || effects.writes.empty()) continue;
    out[at] = std::ranges::all_of(effects.writes, [&](loop::BufferId id) {
      const bool small = program[id].storage == loop::Storage::kArena && operands.contains(id) &&
                         typical_bytes(program, id) <= kSmall;
      return program[id].storage == loop::Storage::kState || small;
    });
    if (out[at]) operands.insert(effects.reads.begin(), effects.reads.end());
  }
  return out;
}

// The last launch before `at` that must stay before it; `first` - 1 if there is none from `first` on.
int last_before(const loop::Program& program, const loop::Steps& steps, const Flow& flow, int first, int at) {
  const loop::Nest& nest = *nest_at(program, steps, at);
  int last = first - 1;
  const auto stays_behind = [&](const std::vector<int>& others, loop::BufferId id) {
    for (const int other : others)
      if (other > last && may_access_same(program, nest, steps[other], id)) last = other;
  };
  const Effects& effects = flow.effects(at);
  for (loop::BufferId id : effects.reads) stays_behind(flow.writers_between(id, first - 1, at), id);
  for (loop::BufferId id : effects.writes) {
    stays_behind(flow.writers_between(id, first - 1, at), id);
    stays_behind(flow.readers_between(id, first - 1, at), id);
  }
  return last;
}

void move_updates(const loop::Program& program, loop::Steps& steps) {
  Flow flow(program, steps);
  const std::vector<bool> updates = find_updates(program, steps, flow);
  int first = 0;  // of the launches in a row
  for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
    if (!nest_at(program, steps, at)) {
      first = at + 1;
      continue;
    }
    if (!updates[at]) continue;  // launches behind have not moved
    const int to = last_before(program, steps, flow, first, at) + 1;
    std::rotate(steps.begin() + to, steps.begin() + at, steps.begin() + at + 1);
    flow.move(at, to);
  }
}

}  // namespace

void update_early(loop::Program& program) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { move_updates(program, steps); });
}

}  // namespace stridec::schedule
