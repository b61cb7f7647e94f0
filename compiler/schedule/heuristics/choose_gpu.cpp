#include "compiler/schedule/heuristics/choose_gpu.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/sort.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/provenance.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/directives/schedule.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"
#include "compiler/schedule/heuristics/flash.h"
#include "compiler/schedule/heuristics/flash_backward.h"
#include "compiler/schedule/heuristics/point_tiling.h"
#include "compiler/schedule/heuristics/streamed_chain.h"
#include "compiler/schedule/layout/order_weights.h"

namespace stridec::schedule {
namespace {

bool sooner(const Candidate& x, const Candidate& y) { return x.cycles < y.cycles; }

// Merges neighbouring dims that every access steps through as one.
LoopPlan merged(const loop::Program& program, const loop::Nest& nest, LoopPlan plan) {
  loop::Nest now = reshaped(program, nest, plan);
  for (size_t d = now.dims.size(); d-- > 1;)
    if (can_merge(program, now, now.dims[d - 1].var, now.dims[d].var)) {
      plan.reshapes.push_back({{now.dims[d - 1].var, now.dims[d].var}, {}});
      now = reshaped(program, nest, plan);
    }
  return plan;
}

// What thread groups could do for the points of a nest.
struct TeamWork {
  double points = 1, longest = 0;                   // longest: elements of the longest loop in a point
  int rows = 0;                                     // accesses in loops that are contiguous along the loop
  std::map<sym::Expr, int, sym::ExprLess> columns;  // accesses contiguous along a parallel dim, by dim
  bool plain = true;                                // one thread can compute neighbouring points
};

// Returns nothing if thread groups cannot share the points.
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

// The nest's only loop, if it is a scan such as a running sum that a thread group can share and no point
// updates memory. Returns null otherwise, and if so many neighbouring points are contiguous that one thread
// each keeps memory busy.
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

// Chooses thread groups for the points of the (merged) nest, or leaves the plan at one thread per point.
//
// A thread group pays if the loops inside a point are long and contiguous in memory, as rows are:
// neighbouring threads then read neighbouring elements. If neighbouring points are contiguous instead, a
// group processes columns.
void choose_team(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                 LoopPlan& plan) {
  // Elements of a point that a single thread may process: kShortColumn if neighbouring points are contiguous,
  // kShortRow for rows, of which the threads of a warp would otherwise read one memory line each.
  constexpr double kShort = 64, kShortColumn = 32, kShortRow = 24;
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
  if (longest < (columns && work->plain ? kShortColumn : kShort) && (columns || work->rows == 0)) return;
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
  // For many short rows: a thread has up to three vectors of a row, whose loads overlap, and few threads are
  // idle.
  constexpr int kVector = 8, kVectors = 3, kLeast = 4;
  while (plan.team > kLeast && longest <= kVector * kVectors * plan.team / 2 &&
         points * plan.team / 2 >= 512 * target.multiprocessors)
    plan.team /= 2;
}

// Dims a and b of a nest without loops that stores along a and loads along b, if tiles of both are worth
// transposing in shared memory.
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
  // Two tiles fill the shared memory that a block has by default.
  if (!across || turned > 2) return std::nullopt;
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

// Candidates for loops: other blocks of neighbouring points, other thread groups, and one thread per point.
// Thread groups have no cost model: a candidate counts as slightly slower the further it is from the default.
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
      // For runs of few points, `fewer` is the part of the schedule that counts.
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
  if (fits_flash_backward(program, nest, target)) return {std::string(kernels::kFlashBackward), {}};
  if (const auto plans = streamed_chain_plans(program, nest, target); !plans.empty())
    return kernels::to_schedule(plans[0]);
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
  for (const kernels::StreamedChainPlan& plan : streamed_chain_plans(program, nest, target)) {
    loop::Schedule schedule = kernels::to_schedule(plan);
    const bool is_first = schedule == first;
    all.push_back({std::move(schedule), is_first ? 1e3 : 1.1e3, std::string(kernels::kStreamedChain)});
  }
  if (all.empty())
    for (RankedSchedule& ranked : contraction_schedules(program, nest, target, shapes, around))
      all.push_back({std::move(ranked.schedule), ranked.cycles, std::move(ranked.family)});
  if (first.kernel.empty()) {
    // A GEMM that is not worth tiles: its loops are expected to be no slower than the best tiled schedule.
    const double scale = all.empty() ? 1 : 1e-3 * std::min_element(all.begin(), all.end(), sooner)->cycles;
    for (Candidate& candidate : loop_candidates(program, nest, target)) {
      candidate.cycles *= scale;
      all.push_back(std::move(candidate));
    }
  }
  if (all.empty()) all.push_back({first, 1e3, first.kernel});  // a template without parameters
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
