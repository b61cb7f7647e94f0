#include "compiler/schedule/memory/recompute.h"

#include <algorithm>

#include "compiler/loop/analysis.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/memory/recompute_timeline.h"

namespace stridec::schedule {
namespace {

using loop::Program;

// Programs whose memory is planned, to choose among them.
constexpr size_t kMostPlans = 16;
// Of all repetitions together, as a multiple of the program's work; it bounds the search.
constexpr double kMostWork = 2;

// The repetitions that lower the peak step by step, and the peaks: peaks[k] is that after k repetitions.
struct Path {
  std::vector<RecomputeTimeline::Repeat> repeats;
  std::vector<double> peaks;
};

Path find_path(const Program& program) {
  RecomputeTimeline run(program);
  Path path;
  double work = kMostWork * run.total_work();
  for (;;) {
    const RecomputeTimeline::Peak peak = run.peak();
    path.peaks.push_back(peak.bytes);
    const auto repeat = run.best(peak, work);
    if (!repeat) return path;
    work -= repeat->work;
    run.apply(*repeat);
    path.repeats.push_back(*repeat);
  }
}

// Numbers of repetitions at which to plan memory: those whose peak is lower than all before, spread evenly
// over the bytes between the first and the lowest.
std::vector<size_t> stops_of(const Path& path) {
  const double first = path.peaks.front(), least = *std::ranges::min_element(path.peaks);
  std::vector<size_t> stops = {0};
  double lowest = first;
  for (size_t k = 1; k < path.peaks.size(); ++k) {
    const double peak = path.peaks[k];
    if (peak >= lowest) continue;
    lowest = peak;
    const double next = first - (first - least) * static_cast<double>(stops.size()) / (kMostPlans - 1);
    if (peak <= next * (1 + 1e-9) || peak == least) stops.push_back(k);
  }
  return stops;
}

RecomputeTimeline after(const Program& program, const Path& path, size_t repeats) {
  RecomputeTimeline run(program);
  for (size_t k = 0; k < repeats; ++k) run.apply(path.repeats[k]);
  return run;
}

std::vector<Recomputed> report_of(const Program& program, const RecomputeTimeline& run) {
  std::vector<Recomputed> out;
  const auto nest_of = [&](const TimelineStep& step) -> const loop::Nest& {
    return program[std::get<loop::Launch>(program.steps[static_cast<size_t>(step.of)].node).nest];
  };
  const auto whole = [&](sym::Expr e) { return static_cast<int64_t>(typical(e, program.facts)); };
  const auto& steps = run.steps();
  for (size_t at = 0; at < steps.size(); ++at) {
    if (!steps[at].repeated) continue;
    const loop::Nest& nest = nest_of(steps[at]);
    const auto next = std::find_if(steps.begin() + static_cast<std::ptrdiff_t>(at), steps.end(),
                                   [](const TimelineStep& step) { return !step.repeated; });
    const auto* launch = next == steps.end()
                             ? nullptr
                             : std::get_if<loop::Launch>(&program.steps[static_cast<size_t>(next->of)].node);
    for (Tensor t : steps[at].writes) {
      const loop::Buffer& buffer = program[run.buffer_of(t)];
      out.push_back({.tensor = buffer.name,
                     .nodes = nest.nodes,
                     .before = launch ? program[launch->nest].name : "control flow",
                     .bytes = static_cast<int64_t>(typical_bytes(program, run.buffer_of(t))),
                     .flops = whole(loop::cost_of(program, nest).flops)});
    }
  }
  return out;
}

}  // namespace

RecomputePlan recompute(Program& program, const MemoryBudget& budget, const ArenaBytes& arena_bytes) {
  RecomputePlan plan;
  plan.keeping_all = plan.arena = plan.least = arena_bytes(program);
  const Path path = find_path(program);
  const std::vector<size_t> stops = stops_of(path);
  std::vector<int64_t> arenas = {plan.keeping_all};
  for (size_t i = 1; i < stops.size(); ++i) {
    arenas.push_back(arena_bytes(after(program, path, stops[i]).materialize()));
    plan.least = std::min(plan.least, arenas.back());
  }
  const double saving = static_cast<double>(plan.keeping_all - plan.least);
  const int64_t most = budget.bytes.value_or(plan.least + static_cast<int64_t>(saving * budget.share));
  size_t chosen = static_cast<size_t>(
      std::ranges::find_if(arenas, [&](int64_t bytes) { return bytes <= most; }) - arenas.begin());
  if (chosen == arenas.size())
    chosen = static_cast<size_t>(std::ranges::min_element(arenas) - arenas.begin());
  plan.arena = arenas[chosen];
  if (chosen == 0) return plan;
  const RecomputeTimeline run = after(program, path, stops[chosen]);
  plan.recomputed = report_of(program, run);
  program = run.materialize();
  return plan;
}

}  // namespace stridec::schedule
