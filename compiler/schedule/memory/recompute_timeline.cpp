#include "compiler/schedule/memory/recompute_timeline.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/add_buffer_like.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/directives/applies.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::Program;
using loop::Step;
using loop::Storage;

// Floating-point operations that take as long as one byte of memory traffic, roughly, on any target.
constexpr double kFlopsPerByte = 16;
// Of a launch, in bytes of memory traffic.
constexpr double kLaunchWork = 1 << 14;
// An operand smaller than this share of the tensor is kept, not computed again.
constexpr double kSmallOperand = 1.0 / 32;
// Launches that are repeated for operands of operands.
constexpr int kDepth = 6;
// The least share of the peak that is worth a repetition.
constexpr double kLeastSaved = 1e-4;

double work_of_nest(const Program& program, const Nest& nest) {
  const loop::Cost cost = loop::cost_of(program, nest);
  const auto value = [&](sym::Expr e) { return typical(e, program.facts); };
  return std::max(value(cost.flops) / kFlopsPerByte, value(cost.bytes_read) + value(cost.bytes_written)) +
         kLaunchWork;
}

const loop::Launch* launch_of(const Step& step) { return std::get_if<loop::Launch>(&step.node); }

// Calls visit(id) for each buffer that the step names.
template <class Visit>
void for_each_buffer(Program& program, loop::Steps& step, Visit&& visit) {
  const auto in_nest = [&](Nest& nest) {
    loop::for_each_stmt(nest.body, [&](loop::Stmt& stmt) {
      if (loop::Access* access = loop::access_of(stmt)) visit(access->buffer);
    });
  };
  loop::for_each_step(step, [&](Step& each) {
    std::visit(loop::Overloaded{
                   [&](loop::Launch& launch) { in_nest(program[launch.nest]); },
                   [&](loop::BindSymbol& bind) { visit(bind.buffer); },
                   [](loop::If&) {},
                   [&](loop::While& loop) {
                     if (loop.condition.valid()) visit(loop.condition);
                   },
                   [](loop::TiledGroup&) {},
                   [&](loop::Call& call) {
                     for (auto* ids : {&call.reads, &call.writes})
                       for (BufferId& id : *ids) visit(id);
                   },
                   [&](loop::Copy& copy) { visit(copy.from), visit(copy.to); },
               },
               each.node);
  });
}

// The nest without its stores to the buffers and what only they use; nothing if its schedule does not apply
// to the rest.
std::optional<Nest> without_stores(const Program& program, Nest nest, const std::set<BufferId>& to) {
  if (!nest.schedule.kernel.empty()) return std::nullopt;
  const std::function<void(loop::Block&)> drop = [&](loop::Block& block) {
    std::erase_if(block, [&](const loop::Stmt& stmt) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      return store && to.contains(store->access.buffer);
    });
    for (loop::Stmt& stmt : block)
      if (loop::Block* body = loop::body_of(stmt)) drop(*body);
  };
  drop(nest.body);
  loop::eliminate_dead(nest);
  return why_illegal(program, nest, nest.schedule).empty() ? std::optional(std::move(nest)) : std::nullopt;
}

}  // namespace

RecomputeTimeline::RecomputeTimeline(const Program& program) : program_(program) {
  std::set<BufferId> own;
  for (const loop::TiledGroup* group : loop::tiled_groups_of(program))
    own.insert(group->own.begin(), group->own.end());
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const BufferId id(static_cast<int64_t>(i));
    of_.push_back(id);
    tensors_of_.push_back({static_cast<Tensor>(i)});
    const bool placed = program[id].storage == Storage::kArena && !own.contains(id);
    bytes_.push_back(placed ? typical(extent_in_elements(program[id]), program.facts) *
                                  static_cast<double>(byte_size(program[id].dtype))
                            : 0);
  }
  const Flow flow(program, program.steps);
  for (size_t at = 0; at < program.steps.size(); ++at) {
    TimelineStep& step = steps_.emplace_back(TimelineStep{.of = static_cast<int>(at)});
    for (BufferId id : flow.effects(at).reads) step.reads.push_back(static_cast<Tensor>(id.value));
    for (BufferId id : flow.effects(at).writes) step.writes.push_back(static_cast<Tensor>(id.value));
    const auto* launch = launch_of(program.steps[at]);
    work_.push_back(launch ? work_of_nest(program, program[launch->nest]) : 0);
    repeatable_.push_back(launch && !flow.effects(at).updates);
  }
  find_uses();
}

double RecomputeTimeline::bytes_of(Tensor tensor) const {
  return bytes_[static_cast<size_t>(buffer_of(tensor).value)];
}
bool RecomputeTimeline::is_scratch(Tensor tensor) const { return bytes_of(tensor) > 0; }

void RecomputeTimeline::find_uses() {
  uses_.assign(of_.size(), {});
  writers_.assign(of_.size(), {});
  for (size_t at = 0; at < steps_.size(); ++at) {
    const auto use = [&](std::vector<std::vector<int>>& lists, const std::vector<Tensor>& tensors) {
      for (Tensor t : tensors) {
        std::vector<int>& list = lists[static_cast<size_t>(t)];
        if (list.empty() || list.back() != static_cast<int>(at)) list.push_back(static_cast<int>(at));
      }
    };
    use(uses_, steps_[at].reads);
    use(uses_, steps_[at].writes);
    use(writers_, steps_[at].writes);
  }
}

RecomputeTimeline::Peak RecomputeTimeline::peak() const {
  std::vector<double> change(steps_.size() + 1);
  for (size_t t = 0; t < of_.size(); ++t) {
    if (uses_[t].empty()) continue;
    change[static_cast<size_t>(uses_[t].front())] += bytes_of(static_cast<Tensor>(t));
    change[static_cast<size_t>(uses_[t].back()) + 1] -= bytes_of(static_cast<Tensor>(t));
  }
  Peak best{0, 0};
  double live = 0;
  for (size_t at = 0; at < steps_.size(); ++at) {
    live += change[at];
    if (live > best.bytes * (1 + 1e-9)) best = {static_cast<int>(at), live};
  }
  return best;
}

double RecomputeTimeline::total_work() const {
  double total = 0;
  for (const TimelineStep& step : steps_) total += work_[static_cast<size_t>(step.of)];
  return total;
}

// The first of the launches that run at the same time as the step. A repetition for one of them runs before
// all of them.
int RecomputeTimeline::group_of(int at) const {
  const auto is_concurrent = [&](const TimelineStep& step) {
    const auto* launch = launch_of(program_.steps[static_cast<size_t>(step.of)]);
    return !step.repeated && launch && launch->concurrent;
  };
  while (at > 0 && is_concurrent(steps_[static_cast<size_t>(at)])) --at;
  return at;
}

// The tensor that a repetition just before `before` reads where the launch at `from` reads `read`: the same
// or a copy of it. Nothing if the contents have changed in between.
std::optional<Tensor> RecomputeTimeline::operand_at(Tensor read, int from, int before) const {
  for (int at : writers_[static_cast<size_t>(read)])
    if (at > from && at < before) return std::nullopt;
  Tensor latest = read;
  for (Tensor t : tensors_of_[static_cast<size_t>(buffer_of(read).value)]) {
    const std::vector<int>& uses = uses_[static_cast<size_t>(t)];
    if (uses.empty() || uses.front() >= before) continue;
    if (uses.back() >= before) return t;
    if (uses.front() > uses_[static_cast<size_t>(latest)].front()) latest = t;
  }
  return latest;
}

// Whether one step alone writes the tensor, and reads nothing of it but what it wrote.
bool RecomputeTimeline::is_own(Tensor tensor) const {
  const size_t t = static_cast<size_t>(tensor);
  const Storage storage = program_[buffer_of(tensor)].storage;
  return (storage == Storage::kArena || storage == Storage::kLocal) && writers_[t].size() == 1 &&
         uses_[t].front() == writers_[t].front();
}

bool RecomputeTimeline::may_repeat(int at) const {
  return repeatable_[static_cast<size_t>(steps_[static_cast<size_t>(at)].of)];
}

// The other tensors that the launch that computes `tensor` writes, where the repetition can serve all uses
// after the peak.
std::vector<Tensor> RecomputeTimeline::siblings(Tensor tensor, const Peak& peak, int before) const {
  std::vector<Tensor> out;
  for (Tensor t : steps_[static_cast<size_t>(writer_of(tensor))].writes) {
    const std::vector<int>& uses = uses_[static_cast<size_t>(t)];
    if (t == tensor || !is_scratch(t) || !is_own(t)) continue;
    const auto next = std::lower_bound(uses.begin(), uses.end(), peak.at);
    if (next != uses.end() && *next > peak.at && *next >= before) out.push_back(t);
  }
  return out;
}

// Repetitions from position `before` on that a copy of the tensor made there replaces.
std::vector<Tensor> RecomputeTimeline::later_copies(Tensor tensor, int before) const {
  std::vector<Tensor> out;
  for (Tensor t : tensors_of_[static_cast<size_t>(buffer_of(tensor).value)]) {
    if (uses_[static_cast<size_t>(t)].empty() || writer_of(t) < before) continue;
    const TimelineStep& step = steps_[static_cast<size_t>(writer_of(t))];
    if (step.repeated && step.writes.size() == 1) out.push_back(t);
  }
  return out;
}

// Builds one Repeat.
struct RecomputeTimeline::Search {
  const RecomputeTimeline& run;
  const Peak& peak;
  Repeat made{};
  std::set<Tensor> kept = {};  // operands that live longer

  const std::vector<int>& uses(Tensor t) const { return run.uses_[static_cast<size_t>(t)]; }
  Launch* launch_at(int at) {
    for (Launch& launch : made.launches)
      if (launch.at == at) return &launch;
    return nullptr;
  }
  bool repeats(Tensor t) {
    const Launch* launch =
        run.writers_[static_cast<size_t>(t)].empty() ? nullptr : launch_at(run.writer_of(t));
    return launch && std::ranges::find(launch->tensors, t) != launch->tensors.end();
  }

  // Repeats the launch that computes `t`. `depth`: how many launches before it may be repeated for it.
  bool add(Tensor t, int depth) {
    if (!run.is_own(t)) return false;
    const int writer = run.writer_of(t);
    if (Launch* launch = launch_at(writer)) return launch->tensors.push_back(t), true;
    if (!run.may_repeat(writer)) return false;
    const TimelineStep& step = run.steps_[static_cast<size_t>(writer)];
    std::vector<Tensor> operands;
    for (Tensor read : step.reads) {
      if (std::ranges::find(step.writes, read) != step.writes.end()) {
        if (!run.is_own(read)) return false;
        continue;
      }
      const auto operand = run.operand_at(read, writer, made.before);
      if (!operand) return false;
      operands.push_back(*operand);
    }
    for (Tensor operand : operands) {
      if (!run.is_scratch(operand) || uses(operand).back() >= made.before || repeats(operand)) continue;
      const bool small = run.bytes_of(operand) < kSmallOperand * run.bytes_of(t);
      if (depth > 0 && !small && add(operand, depth - 1)) continue;
      if (kept.insert(operand).second && uses(operand).back() < peak.at) made.saved -= run.bytes_of(operand);
    }
    made.launches.push_back({writer, {t}});
    made.work += run.work_[static_cast<size_t>(step.of)];
    return true;
  }
};

std::optional<RecomputeTimeline::Repeat> RecomputeTimeline::best(const Peak& peak, double work) const {
  std::optional<Repeat> best;
  for (size_t i = 0; i < of_.size(); ++i) {
    const Tensor t = static_cast<Tensor>(i);
    const std::vector<int>& uses = uses_[i];
    if (!is_scratch(t) || uses.empty() || uses.front() >= peak.at || uses.back() <= peak.at) continue;
    const auto next = std::lower_bound(uses.begin(), uses.end(), peak.at);
    const int before = group_of(*next);
    if (before <= peak.at) continue;
    double shallower = 0;
    for (int depth = 0; depth <= kDepth; ++depth) {
      Search search{*this, peak, {.before = before}};
      if (!search.add(t, depth)) break;
      Repeat& made = search.made;
      if (made.work <= shallower || made.work > work) break;  // nothing more to repeat, or too much
      shallower = made.work;
      made.saved += bytes_of(t);
      for (Tensor sibling : siblings(t, peak, before)) {
        made.launches.back().tensors.push_back(sibling);
        made.saved += bytes_of(sibling);
      }
      if (made.saved < peak.bytes * kLeastSaved) continue;
      for (const Launch& launch : made.launches)
        for (Tensor each : launch.tensors)
          for (Tensor copy : later_copies(each, before))
            made.replaced += work_[static_cast<size_t>(steps_[static_cast<size_t>(writer_of(copy))].of)];
      if (!best || made.saved * best->net_work() > best->saved * made.net_work()) best = made;
    }
  }
  return best;
}

Tensor RecomputeTimeline::add_copy(Tensor of) {
  const Tensor copy = static_cast<Tensor>(of_.size());
  of_.push_back(buffer_of(of));
  uses_.emplace_back(), writers_.emplace_back();
  tensors_of_[static_cast<size_t>(buffer_of(of).value)].push_back(copy);
  return copy;
}

// Steps from position `begin` on read `to` in place of `from`.
void RecomputeTimeline::redirect(Tensor from, Tensor to, int begin) {
  for (size_t at = static_cast<size_t>(begin); at < steps_.size(); ++at) {
    TimelineStep& step = steps_[at];
    const auto found = std::find(step.reads.begin(), step.reads.end(), from);
    if (found == step.reads.end()) continue;
    *found = to;
    std::erase_if(step.replaced, [&](const auto& each) { return each.first == buffer_of(from); });
    step.replaced.emplace_back(buffer_of(from), to);
  }
}

void RecomputeTimeline::apply(const Repeat& repeat) {
  std::map<Tensor, Tensor> copies;  // of tensors that are computed again
  std::vector<TimelineStep> added;
  for (const Launch& launch : repeat.launches) {
    const TimelineStep& from = steps_[static_cast<size_t>(launch.at)];
    TimelineStep step{.of = from.of, .repeated = true};
    for (Tensor read : from.reads) {
      if (std::ranges::find(from.writes, read) != from.writes.end()) continue;
      Tensor operand = *operand_at(read, launch.at, repeat.before);
      if (const auto copy = copies.find(operand); copy != copies.end()) operand = copy->second;
      step.reads.push_back(operand);
      step.replaced.emplace_back(buffer_of(operand), operand);
    }
    for (Tensor each : launch.tensors) {
      const Tensor copy = add_copy(each);
      step.writes.push_back(copy);
      step.replaced.emplace_back(buffer_of(each), copy);
      copies.emplace(each, copy);
    }
    added.push_back(std::move(step));
  }
  std::set<int> dropped;
  for (const auto& [old, copy] : copies) {
    redirect(old, copy, repeat.before);
    for (Tensor later : later_copies(old, repeat.before)) {
      redirect(later, copy, repeat.before);
      dropped.insert(writer_of(later));
    }
  }
  for (auto at = dropped.rbegin(); at != dropped.rend(); ++at) steps_.erase(steps_.begin() + *at);
  steps_.insert(steps_.begin() + repeat.before, std::make_move_iterator(added.begin()),
                std::make_move_iterator(added.end()));
  find_uses();
}

// A nest that a repetition runs, with buffers of its own for what nothing reads.
Nest RecomputeTimeline::repetition(Program& out, const TimelineStep& step,
                                   std::map<BufferId, BufferId>& names) const {
  const auto& launch = std::get<loop::Launch>(program_.steps[static_cast<size_t>(step.of)].node);
  const Nest& nest = program_[launch.nest];
  const Effects effects = loop::effects_of(nest);
  std::set<BufferId> unread;
  for (BufferId id : effects.writes) {
    if (names.contains(id)) continue;
    if (reads(effects, id))
      names[id] = add_buffer_like(out, id);
    else
      unread.insert(id);
  }
  if (unread.empty()) return nest;
  if (auto rest = without_stores(out, nest, unread)) return *std::move(rest);
  for (BufferId id : unread) names[id] = add_buffer_like(out, id);
  return nest;
}

Program RecomputeTimeline::materialize() const {
  Program out = program_;
  std::vector<BufferId> buffers;  // by tensor
  for (size_t t = 0; t < of_.size(); ++t)
    buffers.push_back(t < program_.buffers.size() ? of_[t] : add_buffer_like(out, of_[t]));
  out.steps.clear();
  for (const TimelineStep& step : steps_) {
    loop::Steps one = {program_.steps[static_cast<size_t>(step.of)]};
    std::map<BufferId, BufferId> names;
    for (const auto& [from, to] : step.replaced) names[from] = buffers[static_cast<size_t>(to)];
    if (step.repeated) {
      auto& launch = std::get<loop::Launch>(one[0].node);
      launch.nest = loop::add_nest(out, repetition(out, step, names));
      launch.concurrent = false;
    }
    if (!names.empty())
      for_each_buffer(out, one, [&](BufferId& id) {
        if (const auto found = names.find(id); found != names.end()) id = found->second;
      });
    out.steps.push_back(std::move(one[0]));
  }
  return out;
}

}  // namespace stridec::schedule
