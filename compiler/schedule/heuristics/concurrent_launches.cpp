#include "compiler/schedule/heuristics/concurrent_launches.h"

#include <algorithm>

#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {
namespace {

using loop::Launch;

constexpr int kWindow = 12;
constexpr int kMost = 8;

// Whether neither step writes what the other one touches.
bool are_independent(const Effects& a, const Effects& b) {
  const auto disturbs = [](const Effects& x, const Effects& y) {
    return std::ranges::any_of(x.writes, [&](loop::BufferId id) { return touches(y, id); });
  };
  return !disturbs(a, b) && !disturbs(b, a);
}

void group(const loop::Program& program, loop::Steps& steps) {
  Flow flow(program, steps);
  const int count = static_cast<int>(steps.size());
  const auto is_launch = [&](int at) { return std::holds_alternative<Launch>(steps[at].node); };
  for (int first = 0; first < count; ++first) {
    if (!is_launch(first)) continue;
    int end = first + 1;  // of the group
    for (int at = end; at < std::min(count, first + kWindow) && end - first < kMost; ++at) {
      if (!is_launch(at)) break;
      bool independent = true;
      for (int member = first; member < end; ++member)
        independent = independent && are_independent(flow.effects(member), flow.effects(at));
      if (!independent || !may_move(program, steps, flow, at, end - 1)) continue;
      std::get<Launch>(steps[at].node).concurrent = true;
      std::rotate(steps.begin() + end, steps.begin() + at, steps.begin() + at + 1);
      flow.move(at, end);
      ++end;
    }
    first = end - 1;
  }
}

}  // namespace

void group_launches(loop::Program& program) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { group(program, steps); });
}

}  // namespace stridec::schedule
