#include "compiler/schedule/heuristics/choose_gpu.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/sort.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/directives/schedule.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"
#include "compiler/schedule/heuristics/flash.h"
#include "compiler/schedule/heuristics/point_tiling.h"
#include "compiler/schedule/layout/order_weights.h"

namespace stridec::schedule {
namespace {

bool sooner(const Candidate& x, const Candidate& y) { return x.cycles < y.cycles; }

// Neighbouring dims that every access walks through in step become one.
LoopPlan merged(const loop::Program& program, const loop::Nest& nest, LoopPlan plan) {
  loop::Nest now = reshaped(program, nest, plan);
  for (size_t d = now.dims.size(); d-- > 1;)
    if (can_merge(program, now, now.dims[d - 1].var, now.dims[d].var)) {
      plan.reshapes.push_back({{now.dims[d - 1].var, now.dims[d].var}, {}});
      now = reshaped(program, nest, plan);
    }
  return plan;
}

// What teams of threads could do for the points of a nest.
struct TeamWork {
  double points = 1, longest = 0;                   // of the longest loop in a point, elements
  int rows = 0;                                     // accesses in loops that run along the loop
  std::map<sym::Expr, int, sym::ExprLess> columns;  // and those that run along a parallel dim
  bool plain = true;                                // points that are neighbours can be done by one thread
};

// Nothing where no team can.
std::optional<TeamWork> team_work(const loop::Program& program, const loop::Nest& nest) {
  const sym::Facts facts = loop::facts_of(program, nest);
  TeamWork work;
  for (const loop::Stmt& stmt : nest.body) {
    if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && store->update) return std::nullopt;
    if (std::holds_alternative<loop::Scan>(stmt.node)) return std::nullopt;
    work.plain = work.plain && !std::holds_alternative<loop::Bind>(stmt.node);
    const loop::Block* block = loop::body_of(stmt);
    if (!block) continue;
    const std::vector<loop::Dim> dims = loop::dims_of(stmt);
    double count = 1;
    for (const loop::Dim& dim : dims) {
      if (sym::has_index(dim.extent) || !loop::stores_apart(*block, dim.var)) return std::nullopt;
      count *= std::max(1.0, typical(dim.extent, facts));
    }
    work.longest = std::max(work.longest, count);
    for (const loop::Stmt& inner : *block) {
      work.plain = work.plain && !std::holds_alternative<loop::Bind>(inner.node);
      const loop::Access* access = loop::access_of(inner);
      if (!access || dims.empty()) continue;
      if (const auto* store = std::get_if<loop::Store>(&inner.node); store && store->update)
        return std::nullopt;
      if (program[access->buffer].storage == loop::Storage::kLocal) {
        work.plain = work.plain && access->mask.is_const(1);
        continue;
      }
      sym::Facts inside = facts;
      for (const loop::Dim& dim : dims) inside.set_index(dim.var, dim.extent);
      auto unit = [&](sym::Expr var) {
        const auto stride = loop::stride_of(program, *access, var, inside);
        return stride && stride->is_const(1);
      };
      work.rows += unit(dims.back().var);
      for (const loop::Dim& dim : nest.dims)
        if (unit(dim.var)) ++work.columns[dim.var];
    }
  }
  for (const loop::Dim& dim : nest.dims) {
    if (sym::has_index(dim.extent)) return std::nullopt;
    work.points *= std::max(1.0, typical(dim.extent, facts));
  }
  return work;
}

// The only loop of a nest of points without updates, a running sum or the like that a team can share; nothing where there is
// no such loop, or where so many neighbouring points lie next to each other that a thread each keeps memory busy.
const loop::Scan* shared_scan(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  const loop::Scan* found = nullptr;
  const sym::Facts facts = loop::facts_of(program, nest);
  double points = 1;
  for (const loop::Dim& dim : nest.dims) {
    if (sym::has_index(dim.extent)) return nullptr;
    points *= std::max(1.0, typical(dim.extent, facts));
  }
  for (const loop::Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if ((store && store->update) || std::holds_alternative<loop::Bind>(stmt.node)) return nullptr;
    if (!loop::body_of(stmt)) continue;
    const auto* scan = std::get_if<loop::Scan>(&stmt.node);
    if (found || !scan || !loop::accumulation_of(nest, *scan)) return nullptr;
    found = scan;
  }
  if (!found) return nullptr;
  sym::Facts inside = facts;
  inside.set_index(found->dim.var, found->dim.extent);
  const bool along = std::any_of(found->body.begin(), found->body.end(), [&](const loop::Stmt& stmt) {
    const loop::Access* access = loop::access_of(stmt);
    const auto stride = access ? loop::stride_of(program, *access, found->dim.var, inside) : std::nullopt;
    return stride && stride->is_const(1);
  });
  return along || points < 512.0 * target.multiprocessors ? found : nullptr;
}

// Teams of threads for the points of the (merged) nest; left alone: a thread a point.
//
// A team pays where the loops inside a point are long and walk through memory in step, as rows do: neighbouring threads
// then read neighbouring elements. Where neighbouring points lie next to each other instead, a team does columns.
void choose_team(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                 LoopPlan& plan) {
  // Elements of a point that one thread may do: of neighbouring points that lie side by side, or of rows, of which a warp's
  // threads else read as many lines of memory as they are.
  constexpr double kShort = 64, kShortRow = 24;
  if (const loop::Scan* scan = shared_scan(program, nest, target)) {
    if (typical(scan->dim.extent, loop::facts_of(program, nest)) >= kShort) plan.team = 32;
    return;
  }
  const std::optional<TeamWork> work = team_work(program, nest);
  if (!work || work->longest < kShortRow) return;
  const double longest = work->longest, points = work->points;
  const double room = 256.0 * target.multiprocessors;  // points that occupy the GPU
  const auto most = std::max_element(work->columns.begin(), work->columns.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool columns = most != work->columns.end() && most->second >= work->rows;
  if (longest < kShort && (columns || work->rows == 0)) return;
  if (columns) {
    if (work->plain) {
      plan.columns = most->first;
      plan.team = longest <= 256 ? 256 : 512;
      return;
    }
    if (points >= room / 8) return;
  }
  if (work->rows == 0 && points >= room / 8) return;
  plan.team = longest <= 1024 ? 32 : longest <= 4096 ? 128 : 512;
  // Short rows, if there are many: a thread has up to three vectors of one, whose loads are under way together, and few
  // threads have none.
  constexpr int kVector = 8, kVectors = 3, kLeast = 4;
  while (plan.team > kLeast && longest <= kVector * kVectors * plan.team / 2 &&
         points * plan.team / 2 >= 512 * target.multiprocessors)
    plan.team /= 2;
}

// Dims a and b of a nest without loops that stores along a what it loads along b: tiles of both are worth their way
// through shared memory.
std::optional<std::pair<sym::Expr, sym::Expr>> tile_of(const loop::Program& program, const loop::Nest& nest) {
  constexpr double kShort = 16;
  const sym::Facts facts = loop::facts_of(program, nest);
  auto dim_along = [&](const loop::Access& access) -> const loop::Dim* {
    for (const loop::Dim& dim : nest.dims) {
      const auto stride = loop::stride_of(program, access, dim.var, facts);
      if (stride && stride->is_const(1)) return &dim;
    }
    return nullptr;
  };
  const loop::Dim *along = nullptr, *across = nullptr;
  int turned = 0;
  for (const loop::Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (loop::body_of(stmt) || std::holds_alternative<loop::Bind>(stmt.node) || (store && store->update))
      return std::nullopt;
    if (!store) continue;
    const loop::Dim* dim = dim_along(store->access);
    if (!dim || (along && along != dim)) return std::nullopt;
    along = dim;
  }
  if (!along) return std::nullopt;
  for (const loop::Dim& dim : nest.dims)
    if (sym::has_index(dim.extent)) return std::nullopt;
  const loop::Effects effects = loop::effects_of(nest);
  for (const loop::Stmt& stmt : nest.body) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load) continue;
    if (std::count(effects.writes.begin(), effects.writes.end(), load->access.buffer)) return std::nullopt;
    const loop::Dim* dim = dim_along(load->access);
    if (!dim || dim == along || (across && across != dim)) continue;
    const auto stride = loop::stride_of(program, load->access, along->var, facts);
    if (!stride || stride->is_const(0)) continue;
    across = dim;
    ++turned;
  }
  if (!across || turned > 2)
    return std::nullopt;  // two tiles fill what shared memory a block has for the asking
  if (typical(along->extent, facts) < kShort || typical(across->extent, facts) < kShort) return std::nullopt;
  return std::pair(along->var, across->var);
}

LoopPlan choose_loops(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  LoopPlan plan;
  plan.reorder = memory_order(program, reshaped(program, nest, plan));
  if (choose_points(program, reshaped(program, nest, plan), target, plan)) return plan;
  plan = merged(program, nest, plan);
  const loop::Nest now = reshaped(program, nest, plan);
  plan.tile = tile_of(program, now);
  if (!plan.tile) choose_team(program, now, target, plan);
  return plan;
}

std::string family_of(const LoopPlan& plan) {
  return plan.tile              ? "tile"
         : !plan.points.empty() ? "points"
         : plan.columns         ? "columns"
         : plan.team > 1        ? "rows"
                                : "threads";
}

// Other blocks of neighbouring points; other teams, and a thread a point. There is no model of the times of teams: what is
// further from the choice is taken for slower, by a little.
std::vector<Candidate> loop_candidates(const loop::Program& program, const loop::Nest& nest,
                                       const GpuTarget& target) {
  constexpr double kStep = 0.05;
  constexpr size_t kBlocks = 16;
  const LoopPlan chosen = choose_loops(program, nest, target);
  std::vector<Candidate> all;
  const auto add = [&](const LoopPlan& plan, double steps) {
    loop::Schedule schedule{"", directives(plan)};
    const auto same = [&](const Candidate& candidate) { return candidate.schedule == schedule; };
    if (std::none_of(all.begin(), all.end(), same))
      all.push_back({std::move(schedule), 1e3 * (1 + kStep * steps), family_of(plan)});
  };
  add(chosen, 0);
  if (!chosen.points.empty()) {
    const loop::Nest now = reshaped(program, nest, {.reorder = chosen.reorder});
    const auto blocks = point_blocks(program, now, target);
    for (size_t i = 0; i < std::min(kBlocks, blocks.size()); ++i) {
      const double steps = 0.1 * static_cast<double>(i);
      LoopPlan plan = chosen;
      plan.points = blocks[i];
      add(plan, steps);
      // For runs of few points the other part of the schedule is what counts.
      if (!chosen.few) continue;
      plan = chosen;
      plan.few_points = blocks[i];
      add(plan, steps);
    }
  }
  LoopPlan single;
  single.reorder = chosen.reorder;
  single = merged(program, nest, single);
  const auto work = team_work(program, reshaped(program, nest, single));
  if (work && work->longest > 1) {
    for (const int team : {4, 8, 16, 32, 128, 256, 512}) {
      const double steps = std::abs(std::log2(static_cast<double>(team) / std::max(chosen.team, 1)));
      LoopPlan plan = single;
      plan.team = team;
      if (work->rows > 0) add(plan, chosen.columns ? 4 + steps : steps);
      if (!work->plain || team < 256) continue;
      for (const auto& [dim, accesses] : work->columns) {
        plan.columns = dim;
        add(plan, chosen.columns == dim ? steps : 4 + steps);
      }
    }
  }
  if (chosen.points.empty()) add(single, 6);
  return all;
}

}  // namespace

loop::Schedule default_schedule(const loop::Program& program, const loop::Nest& nest,
                                const GpuTarget& target) {
  if (const auto flash = choose_flash(program, nest, target)) return kernels::to_schedule(*flash);
  if (auto contraction = choose_cuda_contraction(program, nest, target)) return *std::move(contraction);
  return {"", directives(choose_loops(program, nest, target))};
}

std::vector<Candidate> candidates(const loop::Program& program, const loop::Nest& nest,
                                  const GpuTarget& target, std::span<const SizesOf> shapes,
                                  const loop::Schedule* around) {
  const loop::Schedule first = around ? *around : default_schedule(program, nest, target);
  std::vector<Candidate> all;
  for (const kernels::FlashPlan& plan : flash_plans(program, nest, target)) {
    loop::Schedule schedule = kernels::to_schedule(plan);
    const bool is_first = schedule == first;
    all.push_back({std::move(schedule), is_first ? 1e3 : 1.1e3,
                   plan.wgmma   ? "flash.wgmma"
                   : plan.split ? "flash.mma split"
                                : "flash.mma"});
  }
  if (all.empty())
    for (RankedSchedule& ranked : contraction_schedules(program, nest, target, shapes, around))
      all.push_back({std::move(ranked.schedule), ranked.cycles, std::move(ranked.family)});
  if (first.kernel.empty()) {
    // A product that is not worth tiles: its threads are expected to be no slower than the best of these.
    const double scale = all.empty() ? 1 : 1e-3 * std::min_element(all.begin(), all.end(), sooner)->cycles;
    for (Candidate& candidate : loop_candidates(program, nest, target)) {
      candidate.cycles *= scale;
      all.push_back(std::move(candidate));
    }
  }
  sort_stable(all, [&](const Candidate& x, const Candidate& y) {
    const bool is_first = x.schedule == first, other_is = y.schedule == first;
    return is_first != other_is ? is_first : sooner(x, y);
  });
  return all;
}

std::string refusal(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                    const loop::Schedule& schedule) {
  if (is_contraction_schedule(program, nest, target, schedule)) return "";
  return refusal(candidates(program, nest, target, {}), schedule);
}

void choose_gpu(loop::Program& program, const GpuTarget& target, const Chosen& chosen) {
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    loop::Nest& nest = program[launch->nest];
    if (nest.schedule != loop::Schedule{}) return;
    const auto found = chosen.find(launch->nest);
    nest.schedule = found != chosen.end() ? found->second : loop::with_provenance(nest, [&] {
      return default_schedule(program, nest, target);
    });
  });
  order_weights(program);
}

}  // namespace stridec::schedule
