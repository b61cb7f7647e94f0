#include "compiler/schedule/heuristics/candidates.h"

#include <algorithm>

#include "compiler/base/sort.h"
#include "compiler/base/text.h"
#include "compiler/schedule/cost/contraction_cost.h"
#include "compiler/schedule/directives/applies.h"
#include "compiler/schedule/heuristics/chain.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "compiler/schedule/heuristics/loop_nest.h"
#include "compiler/schedule/heuristics/window.h"

namespace stridec::schedule {
namespace {

std::string family_of(const kernels::GemmPlan& plan) {
  return cat(plan.kernel->name, " ", kernels::name(plan.a),
             plan.b == kernels::GemmPlan::B::kWeights   ? " weights"
             : plan.b == kernels::GemmPlan::B::kCompact ? " compact"
             : plan.b == kernels::GemmPlan::B::kDirect  ? " direct"
                                                        : " stage");
}

std::string family_of(const kernels::ChainPlan& plan) {
  return cat("chain ", join(plan.links, " ", [](const auto& link) { return link.kernel->name; }));
}

std::string family_of(const LoopPlan& plan) {
  const auto lanes = join(plan.width, " ", [](const auto& one) { return one.first.name(); });
  return cat("loops", plan.transpose ? " transposing" : "",
             lanes.empty() ? " without lanes" : " along " + lanes);
}

}  // namespace

std::vector<Candidate> candidates(const loop::Program& program, const loop::Nest& nest,
                                  const CpuTarget& target) {
  std::vector<Candidate> all;
  const loop::Schedule first = default_schedule(program, nest, target);
  for (const RankedPlan& ranked : contraction_space(program, nest, target))
    all.push_back({kernels::to_schedule(ranked.plan), ranked.cycles, family_of(ranked.plan)});
  const bool has_plans = !all.empty();
  const auto contraction = kernels::match_contraction(nest);
  if (contraction)
    for (const kernels::WindowPlan& plan : window_space(program, nest, *contraction, target))
      all.push_back(
          {kernels::to_schedule(plan), window_cycles(program, nest, *contraction, plan, target), "window"});
  for (const RankedChainPlan& ranked : chain_space(program, nest, target))
    all.push_back({kernels::to_schedule(ranked.plan), ranked.cycles, family_of(ranked.plan)});
  // There are two models. For contractions they are comparable only through general_cycles(), which estimates
  // the best of these loops.
  const auto general = general_space(program, nest, target);
  double scale = 1;
  if (has_plans) {
    const auto best = std::min_element(general.begin(), general.end(),
                                       [](const auto& x, const auto& y) { return x.cycles < y.cycles; });
    scale = general_cycles(program, nest, *contraction, target) / std::max(best->cycles, 1.0);
  }
  for (const RankedLoopPlan& ranked : general)
    all.push_back({{"", directives(ranked.plan)}, scale * ranked.cycles, family_of(ranked.plan)});
  sort_stable(all, [&](const Candidate& x, const Candidate& y) {
    const bool is_first = x.schedule == first, other_is = y.schedule == first;
    return is_first != other_is ? is_first : x.cycles < y.cycles;
  });
  return all;
}

loop::Schedule default_schedule(const loop::Program& program, const loop::Nest& nest,
                                const CpuTarget& target) {
  if (auto contraction = choose_contraction(program, nest, target)) return *std::move(contraction);
  if (const auto chains = chain_space(program, nest, target); !chains.empty())
    return kernels::to_schedule(chains[0].plan);
  return {"", directives(general_plan(program, nest, target))};
}

std::string refusal(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target,
                    const loop::Schedule& schedule) {
  if (schedule.kernel.empty()) return why_illegal(program, nest, schedule);
  if (schedule == default_schedule(program, nest, target)) return "";
  return refusal(candidates(program, nest, target), schedule);
}

std::string refusal(std::span<const Candidate> space, const loop::Schedule& schedule) {
  using Directives = std::vector<loop::Directive>;
  const auto has = [](const Directives& all, const loop::Directive& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  const auto unlike = [&](const Directives& a, const Directives& b) {
    return std::count_if(a.begin(), a.end(), [&](const loop::Directive& one) { return !has(b, one); });
  };
  const auto text = [](const loop::Directive& one) {
    return cat("'", loop::to_string(loop::Schedule{"", {one}}), "'");
  };
  const auto named = [](const std::string& kernel) {
    return kernel.empty() ? "loops without a template" : kernel;
  };
  const loop::Schedule* nearest = nullptr;
  std::ptrdiff_t least = 0;
  std::vector<std::string> kernels;
  for (const Candidate& candidate : space) {
    const loop::Schedule& there = candidate.schedule;
    if (there == schedule) return "";
    if (std::find(kernels.begin(), kernels.end(), named(there.kernel)) == kernels.end())
      kernels.push_back(named(there.kernel));
    if (there.kernel != schedule.kernel) continue;
    const std::ptrdiff_t differ =
        unlike(schedule.directives, there.directives) + unlike(there.directives, schedule.directives);
    if (!nearest || differ < least) nearest = &there, least = differ;
  }
  if (!nearest) return cat("its kernel is not one of those for this nest: ", join(kernels, ", "));
  // The values that the directive can take with the other directives unchanged, or with those of the nearest
  // schedule.
  const auto others = [&](const std::string& name) {
    Directives found;
    for (const Candidate& candidate : space)
      if (candidate.schedule.kernel == schedule.kernel &&
          (&candidate.schedule == nearest || unlike(schedule.directives, candidate.schedule.directives) <= 1))
        for (const loop::Directive& one : candidate.schedule.directives)
          if (one.name == name && !has(found, one)) found.push_back(one);
    return found;
  };
  for (const loop::Directive& one : schedule.directives) {
    if (has(nearest->directives, one)) continue;
    const Directives instead = others(one.name);
    return cat(text(one), " does not apply: ",
               instead.empty() ? "nothing of that name does here"
                               : cat("with the rest it can be ", join(instead, ", ", text)));
  }
  for (const loop::Directive& one : nearest->directives)
    if (!has(schedule.directives, one)) return cat(text(one), " is missing");
  return cat("its directives have another order than in '", loop::to_string(*nearest), "'");
}

}  // namespace stridec::schedule
