#include "compiler/schedule/choose_points.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "compiler/kernels/point_window.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_contraction.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

// What `count` neighbours along `var` load together, in accesses; they share what is the same element.
size_t loads_of(const kernels::PointWindow& window, Expr var, int64_t count, const sym::Facts& facts) {
  size_t loads = 0;
  for (const loop::Reduce* reduce : window.reduces)
    for (const loop::Stmt& stmt : reduce->body) {
      const auto* load = std::get_if<loop::Load>(&stmt.node);
      if (!load) continue;
      loop::Access access = load->access;
      access.mask = 1;
      std::set<loop::Access, kernels::AccessLess> elements;
      for (const std::vector<int64_t>& tap : kernels::taps_of(*reduce))
        for (int64_t q = 0; q < count; ++q)
          elements.insert(kernels::access_at(access, *reduce, tap, var, q, facts));
      loads += elements.size();
    }
  return loads;
}

// A load of a weight whose dim `var` is can have that dim last.
bool can_turn(const loop::Program& program, const loop::Access& access, Expr var) {
  return program[access.buffer].storage == loop::Storage::kWeight &&
         std::count(access.index.begin(), access.index.end(), var) == 1;
}

}  // namespace

LoopPlan::Dims memory_order(const loop::Program& program, const loop::Nest& nest) {
  const loop::Access* written = nullptr;
  for (const loop::Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (store && !written) written = &store->access;
  }
  const loop::Effects effects = loop::effects_of(nest);
  if (!written || effects.updates || nest.dims.size() < 2) return {};
  for (loop::BufferId id : effects.writes)
    if (std::count(effects.reads.begin(), effects.reads.end(), id)) return {};
  const sym::Facts facts = loop::facts_of(program, nest);
  std::vector<std::tuple<double, size_t, Expr>> dims;  // longest step first
  for (const loop::Dim& dim : nest.dims) {
    const auto stride = loop::stride_of(program, *written, dim.var, facts);
    if (sym::has_index(dim.extent) || !stride) return {};
    const double step = std::fabs(typical(*stride, facts));
    if (step == 0) return {};  // a row of nothing says no order
    dims.emplace_back(-step, dims.size(), dim.var);
  }
  std::sort(dims.begin(), dims.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  LoopPlan::Dims order;
  bool same = true;
  for (size_t d = 0; d < dims.size(); ++d) {
    order.push_back(std::get<2>(dims[d]));
    same = same && order[d] == nest.dims[d].var;
  }
  return same ? LoopPlan::Dims() : order;
}

std::vector<LoopPlan::Split> neighbouring_points(const loop::Program& program, const loop::Nest& nest,
                                                 const GpuTarget& target) {
  const auto window = kernels::match_point_window(program, nest);
  if (!window || nest.dims.empty()) return {};
  const sym::Facts facts = loop::facts_of(program, nest);
  for (const loop::Dim& dim : nest.dims)
    if (sym::has_index(dim.extent)) return {};
  const loop::Dim fast = nest.dims.back();
  int least = 16;
  for (const loop::Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (!store) continue;
    const auto stride = loop::stride_of(program, store->access, fast.var, facts);
    if (!stride || !stride->is_const(1) || !store->access.mask.is_const(1)) return {};
    least = std::min(least, byte_size(program[store->access.buffer].dtype));
  }
  for (const loop::Load* load : window->loads) {
    const auto stride = loop::stride_of(program, load->access, fast.var, facts);
    if (sym::depends_on(load->access.mask, fast.var)) return {};
    if (!can_turn(program, load->access, fast.var) &&
        (!stride || !(stride->is_const(0) || stride->is_const(1))))
      return {};
    least = std::min(least, byte_size(program[load->access.buffer].dtype));
  }
  int64_t width = std::min(16 / least, 8);
  if (const auto extent = sym::as_const(fast.extent))
    while (*extent % width) width /= 2;
  if (width < 2) return {};
  std::vector<LoopPlan::Split> points = {{fast.var, width}};

  double threads = 1;
  for (const loop::Dim& dim : nest.dims) threads *= std::max(1.0, typical(dim.extent, facts));
  threads /= static_cast<double>(width);
  const loop::Dim* along = nullptr;
  size_t fewest = 0;
  for (size_t d = 0; d + 1 < nest.dims.size(); ++d) {
    const size_t loads = loads_of(*window, nest.dims[d].var, 2, facts);
    if (!along || loads <= fewest) along = &nest.dims[d], fewest = loads;
  }
  // Less than a quarter of the loads, which the first-level cache has, is not worth a quarter of the threads.
  if (!along || 4 * fewest > 3 * 2 * loads_of(*window, along->var, 1, facts)) return points;
  // As many as share well without filling the registers, waste nothing of the row and leave threads for the whole GPU.
  const auto extent = sym::as_const(along->extent);
  for (const int64_t count : {4, 7, 5, 3, 2}) {
    if (threads / static_cast<double>(count) < 512.0 * target.multiprocessors) continue;
    if (extent ? *extent % count : count != 4) continue;
    points.push_back({along->var, count});
    break;
  }
  return points;
}

}  // namespace stridec::schedule
