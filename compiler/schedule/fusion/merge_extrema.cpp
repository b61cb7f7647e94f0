#include "compiler/schedule/fusion/merge_extrema.h"

#include <algorithm>
#include <set>

#include "compiler/base/numeric.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/cuda_contraction_cost.h"
#include "compiler/schedule/fusion/fusion_join.h"
#include "compiler/schedule/fusion/fusion_rules.h"
#include "compiler/schedule/heuristics/point_tiling.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using loop::Load;
using loop::Nest;
using loop::Program;
using loop::Reduce;
using loop::Stmt;
using loop::Store;

bool is_extremum(const Reduce& reduce) {
  return (reduce.combine == loop::Combine::kMax || reduce.combine == loop::Combine::kMin) &&
         reduce.results.size() == 1;
}

// A nest that only stores the extremum of a window of what it loads, in types that hold every loaded value.
struct Extrema {
  const Reduce* reduce = nullptr;
  const Load* load = nullptr;
  const Store* store = nullptr;
};

std::optional<Extrema> extrema_of(const Program& program, const Nest& nest) {
  Extrema found;
  loop::ValueId last;
  // Each statement uses the one before: a load, casts, the extremum, casts, a store.
  const auto casts = [&](const Stmt& stmt) {
    const auto* let = std::get_if<loop::Let>(&stmt.node);
    if (!let || let->op != loop::ScalarOp::kCast || let->args[0] != last) return false;
    last = let->result;
    return true;
  };
  for (const Stmt& stmt : nest.body) {
    if (const auto* reduce = std::get_if<Reduce>(&stmt.node); reduce && !found.reduce) {
      if (!is_extremum(*reduce)) return std::nullopt;
      found.reduce = reduce;
      for (const Stmt& inner : reduce->body) {
        if (const auto* load = std::get_if<Load>(&inner.node); load && !found.load) {
          found.load = load;
          last = load->result;
        } else if (!found.load || !casts(inner)) {
          return std::nullopt;
        }
      }
      if (!found.load || reduce->yields[0] != last) return std::nullopt;
      last = reduce->results[0];
    } else if (const auto* store = std::get_if<Store>(&stmt.node); store && found.reduce && !found.store) {
      if (store->update || !store->access.mask.is_const(1) || store->value != last) return std::nullopt;
      found.store = store;
    } else if (!found.reduce || found.store || !casts(stmt)) {
      return std::nullopt;
    }
  }
  if (!found.store) return std::nullopt;
  const DType dtype = program[found.load->access.buffer].dtype;
  const DType wide = nest.values[found.reduce->results[0].value].dtype;
  if (!holds_all(program[found.store->access.buffer].dtype, dtype) || !holds_all(wide, dtype))
    return std::nullopt;
  std::set<sym::Expr, sym::ExprLess> vars;
  for (const sym::Expr& index : found.store->access.index)
    if (!loop::is_var_of(index, nest.dims) || !vars.insert(index).second) return std::nullopt;
  if (vars.size() != nest.dims.size()) return std::nullopt;
  return found;
}

// Cycles of a multiprocessor: instructions of threads that compute blocks of points, or memory traffic if
// that takes longer. Nothing if threads do not compute blocks of points.
std::optional<double> cycles_of(const Program& program, const Nest& nest, const GpuTarget& target) {
  const auto issued = point_cycles(program, nest, target);
  if (!issued) return std::nullopt;
  double bytes = 0;
  for (const BufferId id : loop::buffers_of(nest)) bytes += typical_bytes(program, id);
  return std::max(*issued, memory_cycles(bytes, target));
}

class Joiner {
 public:
  Joiner(Program& program, const GpuTarget& target) : program_(program), target_(target) {}

  void steps(loop::Steps& steps) {
    Flow flow(program_, steps);
    for (int from = 0; from < static_cast<int>(steps.size()); ++from) {
      const Nest* inner = nest_at(program_, steps, from);
      const auto extrema = inner ? extrema_of(program_, *inner) : std::nullopt;
      if (!extrema || !passes_once(program_, flow, extrema->store->access.buffer)) continue;
      int at = from + 1;
      while (at < static_cast<int>(steps.size()) && !reads(flow.effects(at), extrema->store->access.buffer))
        ++at;
      const Nest* outer = at < static_cast<int>(steps.size()) ? nest_at(program_, steps, at) : nullptr;
      if (!outer || !may_move(program_, steps, flow, from, at)) continue;
      if (const auto merged = joined(*inner, *extrema, *outer)) {
        replace_steps(program_, steps, flow, at, {from}, *merged);
        --from;
      }
    }
  }

 private:
  std::optional<Nest> joined(const Nest& inner, const Extrema& extrema, const Nest& outer) const {
    Nest merged = outer;
    if (!read_through(extrema, merged)) return std::nullopt;
    loop::clean(program_, merged);
    const auto together = cycles_of(program_, merged, target_);
    const auto first = cycles_of(program_, inner, target_), second = cycles_of(program_, outer, target_);
    if (!together || (first && second && *together > *first + *second)) return std::nullopt;
    join_nodes(merged, inner.nodes);
    return merged;
  }

  // Replaces the nest's extremum of the elements that `extrema` stores by one of the elements that `extrema`
  // loads.
  bool read_through(const Extrema& extrema, Nest& nest) const {
    const BufferId between = extrema.store->access.buffer;
    int loads = 0;
    loop::for_each_stmt(nest.body, [&](const Stmt& stmt) {
      const auto* load = std::get_if<Load>(&stmt.node);
      loads += load && load->access.buffer == between;
    });
    if (loads != 1) return false;
    for (Stmt& stmt : nest.body) {
      auto* reduce = std::get_if<Reduce>(&stmt.node);
      if (!reduce || !is_extremum(*reduce) || reduce->combine != extrema.reduce->combine) continue;
      for (size_t i = 0; i < reduce->body.size(); ++i) {
        auto* load = std::get_if<Load>(&reduce->body[i].node);
        if (!load || load->access.buffer != between) continue;
        const DType dtype = program_[extrema.load->access.buffer].dtype, passed = program_[between].dtype;
        const auto hides = [&](const Load& of, DType type) {
          return of.access.mask.is_const(1) || of.fill == loop::identity(reduce->combine, type);
        };
        if (!hides(*load, passed) || !hides(*extrema.load, dtype)) return false;
        loop::Cloner copy(nest);
        for (size_t d = 0; d < load->access.index.size(); ++d)
          copy.map(extrema.store->access.index[d], load->access.index[d]);
        std::vector<loop::Dim> dims;
        for (const loop::Dim& dim : extrema.reduce->dims) {
          dims.push_back({copy.fresh_index(dim.var), copy.expr(dim.extent)});
          copy.map(dim.var, dims.back().var);
        }
        const sym::Expr mask = load->access.mask;
        load->access = copy.access(extrema.load->access);
        load->access.mask = sym::logical_and(mask, load->access.mask);
        load->fill = loop::identity(reduce->combine, dtype);
        reduce->dims.insert(reduce->dims.begin(), dims.begin(), dims.end());
        if (dtype == passed) return true;
        const loop::ValueId widened = load->result;
        load->result = copy.fresh_value({dtype});
        loop::Let cast{.result = widened, .op = loop::ScalarOp::kCast, .args = {load->result}};
        reduce->body.insert(reduce->body.begin() + static_cast<std::ptrdiff_t>(i) + 1, {std::move(cast)});
        return true;
      }
    }
    return false;
  }

  Program& program_;
  const GpuTarget& target_;
};

}  // namespace

void merge_extrema(Program& program, const GpuTarget& target) {
  Joiner joiner(program, target);
  loop::for_each_block(program.steps, [&](loop::Steps& steps) { joiner.steps(steps); });
}

}  // namespace stridec::schedule
