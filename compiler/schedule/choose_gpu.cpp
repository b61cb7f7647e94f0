#include "compiler/schedule/choose_gpu.h"

#include <algorithm>

#include "compiler/loop/analysis.h"
#include "compiler/loop/blame.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/choose_cuda_contraction.h"
#include "compiler/schedule/choose_flash.h"
#include "compiler/schedule/choose_points.h"
#include "compiler/schedule/order_weights.h"
#include "compiler/schedule/schedule.h"

namespace stridec::schedule {
namespace {

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

// Teams of threads for the points of the (merged) nest; left alone: a thread a point.
//
// A team pays where the loops inside a point are long and walk through memory in step, as rows do: neighbouring threads
// then read neighbouring elements. Where neighbouring points lie next to each other instead, a team does columns.
void choose_team(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                 LoopPlan& plan) {
  constexpr double kShort = 64;  // elements of a point that one thread may do
  const sym::Facts facts = loop::facts_of(program, nest);
  double longest = 0;
  int rows = 0;
  std::map<sym::Expr, int, sym::ExprLess> columns;  // accesses in loops that run along a parallel dim
  bool plain = true;                                // points that are neighbours can be done by one thread
  for (const loop::Stmt& stmt : nest.body) {
    if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && store->update) return;
    if (std::holds_alternative<loop::Scan>(stmt.node)) return;
    plain = plain && !std::holds_alternative<loop::Bind>(stmt.node);
    const loop::Block* block = loop::body_of(stmt);
    if (!block) continue;
    const std::vector<loop::Dim> dims = loop::dims_of(stmt);
    double count = 1;
    for (const loop::Dim& dim : dims) {
      if (sym::has_index(dim.extent) || !loop::stores_apart(*block, dim.var)) return;
      count *= std::max(1.0, typical(dim.extent, facts));
    }
    longest = std::max(longest, count);
    for (const loop::Stmt& inner : *block) {
      plain = plain && !std::holds_alternative<loop::Bind>(inner.node);
      const loop::Access* access = loop::access_of(inner);
      if (!access || dims.empty()) continue;
      if (const auto* store = std::get_if<loop::Store>(&inner.node); store && store->update) return;
      if (program[access->buffer].storage == loop::Storage::kLocal) {
        plain = plain && access->mask.is_const(1);
        continue;
      }
      sym::Facts inside = facts;
      for (const loop::Dim& dim : dims) inside.set_index(dim.var, dim.extent);
      auto unit = [&](sym::Expr var) {
        const auto stride = loop::stride_of(program, *access, var, inside);
        return stride && stride->is_const(1);
      };
      rows += unit(dims.back().var);
      for (const loop::Dim& dim : nest.dims)
        if (unit(dim.var)) ++columns[dim.var];
    }
  }
  double points = 1;
  for (const loop::Dim& dim : nest.dims) {
    if (sym::has_index(dim.extent)) return;
    points *= std::max(1.0, typical(dim.extent, facts));
  }
  const double room = 256.0 * target.multiprocessors;  // points that occupy the GPU
  if (longest < kShort) return;
  const auto most = std::max_element(columns.begin(), columns.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != columns.end() && most->second >= rows) {
    if (plain) {
      plan.columns = most->first;
      plan.team = longest <= 256 ? 256 : 512;
      return;
    }
    if (points >= room / 8) return;
  }
  if (rows == 0 && points >= room / 8) return;
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

}  // namespace

void choose_gpu(loop::Program& program, const GpuTarget& target) {
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    loop::Nest& nest = program[launch->nest];
    if (nest.schedule != loop::Schedule{}) return;
    loop::blaming(nest, [&] {
      if (auto flash = choose_flash(program, nest, target)) {
        nest.schedule = kernels::to_schedule(*flash);
        return;
      }
      if (auto contraction = choose_cuda_contraction(program, nest, target)) {
        nest.schedule = std::move(*contraction);
        return;
      }
      LoopPlan plan;
      plan.reorder = memory_order(program, reshaped(program, nest, plan));
      plan.points = neighbouring_points(program, reshaped(program, nest, plan), target);
      if (!plan.points.empty()) {
        nest.schedule.directives = directives(plan);
        return;
      }
      plan = merged(program, nest, plan);
      const loop::Nest now = reshaped(program, nest, plan);
      plan.tile = tile_of(program, now);
      if (!plan.tile) choose_team(program, now, target, plan);
      nest.schedule.directives = directives(plan);
    });
  });
  order_weights(program);
}

}  // namespace stridec::schedule
