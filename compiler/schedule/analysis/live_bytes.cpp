#include "compiler/schedule/analysis/live_bytes.h"

#include <algorithm>

#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {

std::vector<double> live_bytes(const loop::Program& program, const Flow& flow) {
  const size_t steps = static_cast<size_t>(flow.size());
  std::vector<double> change(steps + 1);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const loop::BufferId id(static_cast<int64_t>(i));
    if (program[id].storage != loop::Storage::kArena) continue;
    const std::vector<int> writers = flow.writers_between(id, -1, flow.size()),
                           readers = flow.readers_between(id, -1, flow.size());
    if (writers.empty()) continue;
    const int last = readers.empty() ? writers.back() : std::max(writers.back(), readers.back());
    const double bytes = typical_bytes(program, id);
    change[static_cast<size_t>(writers.front())] += bytes;
    change[static_cast<size_t>(last) + 1] -= bytes;
  }
  for (size_t at = 1; at < steps; ++at) change[at] += change[at - 1];
  change.resize(steps);
  return change;
}

double peak_bytes(const loop::Program& program) {
  const std::vector<double> live = live_bytes(program, Flow(program, program.steps));
  return live.empty() ? 0 : *std::ranges::max_element(live);
}

}  // namespace stridec::schedule
