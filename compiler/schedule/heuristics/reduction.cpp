// Chooses the reductions to split. The figures are not specific to one machine, so that the partial results,
// and with them the bits of the sums, are the same on every variant.
#include <algorithm>
#include <cmath>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/algebra/split_reduction.h"
#include "compiler/schedule/analysis/decision.h"
#include "compiler/schedule/analysis/nest_traits.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using loop::Dim;
using loop::Nest;
using loop::Program;
using loop::Reduce;
using loop::Stmt;
using sym::Expr;

constexpr double kWorth = 1 << 15;  // elements that justify a second nest
constexpr double kTasks = 32;       // points, or vectors of points, that keep cores busy
constexpr double kBlocks = 256;     // the same of a GPU, where a block has neighbouring columns
constexpr int64_t kLanes = 16;
constexpr double kShortest = 8;          // elements that one partial result combines, at least
constexpr int64_t kStrip = 4096;         // with lanes along the reduction
constexpr int64_t kStripOfRows = 128;    // with lanes along other dims
constexpr double kMostStrips = 1 << 20;  // limit on the partial results in memory

// The least number of points, counting unbounded extents as one.
double least_point_count(const std::vector<Dim>& dims, const sym::Facts& facts) {
  double count = 1;
  for (const Dim& dim : dims) count *= static_cast<double>(std::max<int64_t>(1, facts.bounds(dim.extent).lo));
  return count;
}

int64_t loops(const Nest& nest) {
  return std::count_if(nest.body.begin(), nest.body.end(),
                       [](const Stmt& stmt) { return loop::body_of(stmt) != nullptr; });
}

// The load that decides: the one indexed by most dims of the reduction. Null unless it is indexed by all of
// them.
const loop::Access* main_load(const Reduce& reduce) {
  const loop::Access* best = nullptr;
  size_t most = 0;
  loop::for_each_stmt(reduce.body, [&](const Stmt& stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load) return;
    size_t moved = 0;
    for (const Dim& dim : reduce.dims)
      moved += std::any_of(load->access.index.begin(), load->access.index.end(),
                           [&](Expr e) { return sym::depends_on(e, dim.var); });
    if (moved > most) most = moved, best = &load->access;
  });
  return most == reduce.dims.size() ? best : nullptr;
}

// The split that pays for the reduction, if any. Buffers from number `made` on hold partial results, whose
// combination is not split again.
std::optional<ReductionSplit> wish(const Program& program, const Nest& nest, const Reduce& reduce,
                                   size_t made, Sharing sharing) {
  const sym::Facts facts = loop::facts_of(program, nest, reduce);
  double tasks = sharing == Sharing::kThreads ? least_point_count(nest.dims, program.facts)
                                              : typical_points(nest.dims, program.facts);
  const bool alone = sharing == Sharing::kBlocks && loops(nest) == 1;
  if (alone) tasks = kTasks;
  if (typical_points(nest.dims, program.facts) * typical_points(reduce.dims, program.facts) < kWorth)
    return std::nullopt;
  const loop::Access* load = main_load(reduce);
  if (!load || static_cast<size_t>(load->buffer.value) >= made) return std::nullopt;
  auto step = [&](const Dim& dim) -> std::optional<Expr> {
    return loop::stride_of(program, *load, dim.var, facts);
  };
  auto moves_by = [&](const Dim& dim, int64_t by) {
    const auto stride = step(dim);
    return stride && stride->is_const(by);
  };

  ReductionSplit split;
  std::vector<Dim> rest = reduce.dims;
  bool lanes_parallel = false;
  for (const Dim& dim : nest.dims)
    if (moves_by(dim, 1)) {
      lanes_parallel = true;
      tasks = std::ceil(tasks / kLanes);
    }
  const double enough = sharing == Sharing::kBlocks && lanes_parallel && !alone ? kBlocks : kTasks;
  // Neighbours in memory that are too few for the lanes, next to a parallel dim that continues them.
  std::optional<Dim> neighbours;
  for (const Dim& dim : reduce.dims) {
    const auto extent = sym::as_const(dim.extent);
    if (!extent || *extent < 2 || *extent >= kLanes || !moves_by(dim, 1)) continue;
    for (const Dim& outer : nest.dims)
      if (moves_by(outer, *extent)) {
        split.join = outer.var;
        neighbours = dim;
        lanes_parallel = true;
        tasks = std::ceil(tasks * static_cast<double>(*extent) / kLanes);
        break;
      }
    if (neighbours) break;
  }
  if (neighbours) std::erase_if(rest, [&](const Dim& dim) { return dim.var == neighbours->var; });
  if (rest.empty()) return std::nullopt;

  if (tasks < enough) {
    auto distance = [&](const Dim& dim) {
      const auto stride = step(dim);
      return stride ? std::fabs(typical(*stride, facts)) : 0.0;
    };
    const auto outermost = std::max_element(
        rest.begin(), rest.end(), [&](const Dim& a, const Dim& b) { return distance(a) < distance(b); });
    const double inner =
        typical_points(rest, program.facts) / std::max(1.0, typical(outermost->extent, program.facts));
    const int64_t strip = lanes_parallel ? kStripOfRows : kStrip;
    if (rest.size() > 1 && inner >= kShortest) {
      split.keep.push_back(outermost->var);
    } else if (reduce.dims.size() == 1) {
      const double strips = typical(rest[0].extent, program.facts) / static_cast<double>(strip);
      if (strips >= 2 && strips <= kMostStrips) {
        split.keep.push_back(rest[0].var);
        split.strip = strip;
      }
    }
  }
  if (neighbours) split.keep.push_back(neighbours->var);
  if (split.keep.empty()) return std::nullopt;
  return split;
}

// The split of a GEMM's depth that pays on a GPU, if any: a few tiles of results over a great depth, as the
// weight gradients of convolutions on many positions are, occupy few multiprocessors. One part for each point
// of the outermost dim of the depth.
std::optional<ReductionSplit> wish_of_gemm(const Program& program, const Nest& nest) {
  // Tiles of 64x128 in clusters of 8 blocks occupy 128 multiprocessors.
  constexpr double kFewResults = 1 << 17;
  constexpr double kDeep = 1 << 14, kPartDepth = 1 << 8;
  constexpr double kMostParts = 512;
  const auto contraction = loop::classify_contraction(nest);
  if (!contraction || !contraction->a.plain || !contraction->b.plain || nest.dims.empty())
    return std::nullopt;
  const auto is_activation = [&](const loop::Load& load) {
    const loop::Storage storage = program[load.access.buffer].storage;
    return storage == loop::Storage::kArena || storage == loop::Storage::kInput;
  };
  if (!is_activation(*contraction->a.plain) || !is_activation(*contraction->b.plain)) return std::nullopt;
  const Reduce& reduce = *contraction->reduce;
  const double depth = typical_points(reduce.dims, program.facts);
  if (reduce.dims.size() < 2 || depth < kDeep || typical_points(nest.dims, program.facts) >= kFewResults)
    return std::nullopt;
  const sym::Facts facts = loop::facts_of(program, nest, reduce);
  const auto distance = [&](const Dim& dim) {
    const auto stride = loop::stride_of(program, contraction->a.plain->access, dim.var, facts);
    return stride ? std::fabs(typical(*stride, facts)) : 0.0;
  };
  const auto outermost = std::ranges::max_element(
      reduce.dims, [&](const Dim& a, const Dim& b) { return distance(a) < distance(b); });
  const double parts = std::max(1.0, typical(outermost->extent, program.facts));
  if (distance(*outermost) == 0 || parts < 2 || parts > kMostParts || depth / parts < kPartDepth)
    return std::nullopt;
  ReductionSplit split;
  split.keep.push_back(outermost->var);
  return split;
}

void record(std::vector<Decision>* decisions, const Nest& nest, const ReductionSplit& split, bool made,
            const std::string& reason) {
  if (!decisions) return;
  decisions->push_back(
      decision_about(nest, "partial results", made,
                     made ? to_string(loop::Schedule{.kernel = "", .directives = {to_directive(split)}})
                          : "not split: " + reason));
}

// Splits the first reduction for which it pays; `parts` then replace the nest.
bool split_one(Program& program, const Nest& nest, std::vector<Nest>& parts, size_t made, Sharing sharing,
               std::vector<Decision>* decisions) {
  for (const Stmt& stmt : nest.body) {
    const auto* reduce = std::get_if<Reduce>(&stmt.node);
    if (!reduce) continue;
    const auto split = wish(program, nest, *reduce, made, sharing);
    if (!split) continue;
    std::string reason;
    parts = split_reduction(program, nest, *split, &reason);
    record(decisions, nest, *split, !parts.empty(), reason);
    if (!parts.empty()) return true;
  }
  return false;
}

}  // namespace

void split_reductions(Program& program, Sharing sharing, std::vector<Decision>* decisions) {
  loop::replace_nests(program, [&](const Nest& nest) {
    std::vector<Nest> out, parts;
    if (is_contraction(nest)) return out;
    // The rest of the nest, after the partial results, may hold another long reduction.
    const size_t made = program.buffers.size();
    Nest rest = nest;
    while (split_one(program, rest, parts, made, sharing, decisions)) {
      rest = std::move(parts.back());
      parts.pop_back();
      std::move(parts.begin(), parts.end(), std::back_inserter(out));
    }
    if (!out.empty()) out.push_back(std::move(rest));
    // Schedules name dims, so equal nests need equal names.
    for (Nest& part : out) loop::renumber(part);
    return out;
  });
}

void split_deep_gemms(Program& program, std::vector<Decision>* decisions) {
  loop::replace_nests(program, [&](const Nest& nest) {
    const auto split = wish_of_gemm(program, nest);
    if (!split) return std::vector<Nest>{};
    std::string reason;
    std::vector<Nest> parts = split_reduction(program, nest, *split, &reason);
    record(decisions, nest, *split, !parts.empty(), reason);
    for (Nest& part : parts) loop::renumber(part);
    return parts;
  });
}

}  // namespace stridec::schedule
