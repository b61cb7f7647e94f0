#include "compiler/schedule/memory/early_updates.h"

#include <algorithm>
#include <ranges>
#include <set>

#include "compiler/loop/context_sizes.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/live_bytes.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

constexpr double kSmall = 1024;   // bytes
constexpr double kSumShare = 32;  // a sum is smaller than what it adds by this factor
// All updates move if the peak of memory is then lower than this share of it.
constexpr double kLowerPeak = 0.9;

enum class Moved { kAll, kSums };

// Bytes of the buffer if it is in the arena, otherwise 0.
double arena_bytes(const loop::Program& program, loop::BufferId id) {
  return program[id].storage == loop::Storage::kArena ? typical_bytes(program, id) : 0;
}

// Whether the launch writes much less than it reads from the arena.
bool sums(const loop::Program& program, const Effects& effects) {
  double read = 0, written = 0;
  for (loop::BufferId id : effects.reads) read += arena_bytes(program, id);
  for (loop::BufferId id : effects.writes) written += typical_bytes(program, id);
  return written * kSumShare <= read;
}

// Finds the launches to move: updates, what computes their small operands, such as a step size, and sums of
// the gradients that they read, such as parts of a norm.
class UpdateFinder {
 public:
  UpdateFinder(const loop::Program& program, const loop::Steps& steps, const Flow& flow)
      : program_(program), steps_(steps), flow_(flow), found_(steps.size()) {}

  std::vector<bool> find() {
    for (int at = flow_.size(); at-- > 0;)
      if (nest_at(program_, steps_, at) && is_update(flow_.effects(at))) add(at);
    for (int at = 0; at < flow_.size(); ++at)
      if (nest_at(program_, steps_, at) && is_sum(flow_.effects(at))) found_[at] = true;
    return std::move(found_);
  }

 private:
  void add(int at) {
    found_[at] = true;
    for (loop::BufferId id : flow_.effects(at).reads)
      if (const double bytes = arena_bytes(program_, id))
        (bytes > kSmall ? gradients_ : operands_).insert(id);
  }

  // Whether the launch frees a gradient for states alone, or computes operands of such a launch.
  bool is_update(const Effects& effects) const {
    const auto is_operand = [&](loop::BufferId id) { return operands_.contains(id); };
    const auto is_written = [&](loop::BufferId id) {
      return program_[id].storage == loop::Storage::kState || is_operand(id);
    };
    const auto is_large = [&](loop::BufferId id) { return arena_bytes(program_, id) > kSmall; };
    return !effects.writes.empty() && std::ranges::all_of(effects.writes, is_written) &&
           (std::ranges::any_of(effects.reads, is_large) || std::ranges::any_of(effects.writes, is_operand));
  }

  // Whether the launch sums gradients alone, or computes sums for updates alone.
  bool is_sum(const Effects& effects) const {
    const auto is_gradient = [&](loop::BufferId id) { return gradients_.contains(id); };
    const auto is_small = [&](loop::BufferId id) { return arena_bytes(program_, id) <= kSmall; };
    return !effects.writes.empty() && sums(program_, effects) &&
           std::ranges::all_of(effects.writes,
                               [&](loop::BufferId id) { return arena_bytes(program_, id) > 0; }) &&
           (std::ranges::all_of(effects.writes, is_gradient) ||
            std::ranges::all_of(effects.reads,
                                [&](loop::BufferId id) { return is_small(id) || is_gradient(id); }));
  }

  const loop::Program& program_;
  const loop::Steps& steps_;
  const Flow& flow_;
  std::vector<bool> found_;
  std::set<loop::BufferId> operands_, gradients_;  // that updates read: small and large ones
};

// A launch that allocates what depends on data may fail, and states must then have their old values.
bool has_sizes_of_data(const loop::Program& program) {
  return !std::ranges::all_of(program.symbols, [&](const loop::Symbol& symbol) {
    return loop::is_bound_before_run(program, symbol);
  });
}

void move_updates(const loop::Program& program, loop::Steps& steps, Moved moved) {
  Flow flow(program, steps);
  std::vector<bool> updates = UpdateFinder(program, steps, flow).find();
  if (moved == Moved::kSums)
    for (int at = 0; at < flow.size(); ++at) updates[at] = updates[at] && sums(program, flow.effects(at));
  int first = 0;  // of the launches in a row
  for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
    if (!nest_at(program, steps, at)) {
      first = at + 1;
      continue;
    }
    if (!updates[at]) continue;  // launches at later positions have not moved
    // The last launch that has to stay before it.
    const int last = *std::ranges::partition_point(std::views::iota(first - 1, at), [&](int position) {
      return !may_move(program, steps, flow, at, position);
    });
    const int to = last + 1;
    std::rotate(steps.begin() + to, steps.begin() + at, steps.begin() + at + 1);
    flow.move(at, to);
  }
}

}  // namespace

void update_early(loop::Program& program) {
  if (has_sizes_of_data(program)) return;
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { move_updates(program, steps, Moved::kAll); });
}

void free_early(loop::Program& program) {
  if (has_sizes_of_data(program)) return;
  loop::Program all = program;
  update_early(all);
  loop::for_each_block(program.steps,
                       [&](loop::Steps& steps) { move_updates(program, steps, Moved::kSums); });
  if (peak_bytes(all) < kLowerPeak * peak_bytes(program)) program = std::move(all);
}

}  // namespace stridec::schedule
