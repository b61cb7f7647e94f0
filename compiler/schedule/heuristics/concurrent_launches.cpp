#include "compiler/schedule/heuristics/concurrent_launches.h"

#include <algorithm>

#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"

namespace stridec::schedule {
namespace {

using loop::Launch;

constexpr int kWindow = 12;
constexpr int kMost = 8;

class Grouping {
 public:
  Grouping(const loop::Program& program, loop::Steps& steps)
      : program_(program), steps_(steps), flow_(program, steps) {}

  void run() {
    for (int first = 0; first < count(); ++first) {
      if (!is_launch(first)) continue;
      int end = unit_end(first);  // of the group
      for (int at = end, next; at < std::min(count(), first + kWindow) && is_launch(at); at = next) {
        next = unit_end(at);
        if (end - first + next - at > kMost || !joins(first, end, at, next)) continue;
        for (int member = at; member < next; ++member, ++end) {
          std::get<Launch>(steps_[member].node).concurrent = true;
          std::rotate(steps_.begin() + end, steps_.begin() + member, steps_.begin() + member + 1);
          flow_.move(member, end);
        }
      }
      first = end - 1;
    }
  }

 private:
  int count() const { return static_cast<int>(steps_.size()); }
  bool is_launch(int at) const { return std::holds_alternative<Launch>(steps_[at].node); }
  // The end of the launch and those that are concurrent with it already.
  int unit_end(int at) const {
    int end = at + 1;
    while (end < count() && is_launch(end) && std::get<Launch>(steps_[end].node).concurrent) ++end;
    return end;
  }
  // Whether the steps from `at` to `next` can join the group from `first` to `end`.
  bool joins(int first, int end, int at, int next) const {
    for (int step = at; step < next; ++step) {
      if (!may_move(program_, steps_, flow_, step, end - 1)) return false;
      for (int member = first; member < end; ++member)
        if (!are_independent(flow_.effects(member), flow_.effects(step))) return false;
    }
    return true;
  }

  const loop::Program& program_;
  loop::Steps& steps_;
  Flow flow_;
};

}  // namespace

void group_launches(loop::Program& program) {
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { Grouping(program, steps).run(); });
}

}  // namespace stridec::schedule
