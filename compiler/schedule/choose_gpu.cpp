#include "compiler/schedule/choose_gpu.h"

#include <algorithm>

#include "compiler/loop/analysis.h"
#include "compiler/loop/blame.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/choose_cuda_contraction.h"
#include "compiler/schedule/choose_flash.h"
#include "compiler/schedule/order_weights.h"
#include "compiler/schedule/schedule.h"

namespace stridec::schedule {
namespace {

// Neighbouring dims that every access walks through in step become one.
LoopPlan merged(const loop::Program& program, const loop::Nest& nest) {
  LoopPlan plan;
  loop::Nest now = reshaped(program, nest, plan);
  for (size_t d = now.dims.size(); d-- > 1;)
    if (can_merge(program, now, now.dims[d - 1].var, now.dims[d].var)) {
      plan.reshapes.push_back({{now.dims[d - 1].var, now.dims[d].var}, {}});
      now = reshaped(program, nest, plan);
    }
  return plan;
}

// Threads that share a point of the (merged) nest; 1: a thread a point.
//
// A team pays where the loops inside a point are long and walk through memory in step, as rows do: neighbouring threads
// then read neighbouring elements. Where neighbouring points lie next to each other instead (columns), a thread a point
// does the same.
int team_of(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  constexpr double kShort = 64;  // elements of a point that one thread may do
  const sym::Facts facts = loop::facts_of(program, nest);
  double longest = 0, rows = 0, columns = 0;
  for (const loop::Stmt& stmt : nest.body) {
    if (const auto* store = std::get_if<loop::Store>(&stmt.node); store && store->update) return 1;
    if (std::holds_alternative<loop::Scan>(stmt.node)) return 1;
    const loop::Block* block = loop::body_of(stmt);
    if (!block) continue;
    const std::vector<loop::Dim> dims = loop::dims_of(stmt);
    double count = 1;
    for (const loop::Dim& dim : dims) {
      if (sym::has_index(dim.extent)) return 1;
      count *= std::max(1.0, typical(dim.extent, facts));
    }
    longest = std::max(longest, count);
    for (const loop::Stmt& inner : *block) {
      const loop::Access* access = loop::access_of(inner);
      if (!access || dims.empty()) continue;
      if (const auto* store = std::get_if<loop::Store>(&inner.node); store && store->update) return 1;
      sym::Facts inside = facts;
      for (const loop::Dim& dim : dims) inside.set_index(dim.var, dim.extent);
      auto unit = [&](sym::Expr var) {
        const auto stride = loop::stride_of(program, *access, var, inside);
        return stride && stride->is_const(1);
      };
      rows += unit(dims.back().var);
      columns += !nest.dims.empty() && unit(nest.dims.back().var);
    }
  }
  double points = 1;
  for (const loop::Dim& dim : nest.dims) {
    if (sym::has_index(dim.extent)) return 1;
    points *= std::max(1.0, typical(dim.extent, facts));
  }
  const double room = 256.0 * target.multiprocessors;  // points that occupy the GPU
  if (longest < kShort) return 1;
  if (columns > 0 && columns >= rows && points >= room / 8) return 1;
  if (rows == 0 && points >= room / 8) return 1;
  return longest <= 1024 ? 32 : longest <= 4096 ? 128 : 512;
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
      LoopPlan plan = merged(program, nest);
      plan.team = team_of(program, reshaped(program, nest, plan), target);
      nest.schedule.directives = directives(plan);
    });
  });
  order_weights(program);
}

}  // namespace stridec::schedule
