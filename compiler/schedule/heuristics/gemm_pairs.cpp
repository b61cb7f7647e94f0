#include "compiler/schedule/heuristics/gemm_pairs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "compiler/kernels/contraction.h"
#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/flow.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/heuristics/cuda_contraction.h"

namespace stridec::schedule {
namespace {

using loop::Launch;
using loop::Nest;
using loop::NestId;

constexpr int kWindow = 16;
constexpr int kShares = 12;  // of the GPU
constexpr double kGain = 0.05;

class Pairs {
 public:
  Pairs(loop::Program& program, loop::Steps& steps, const GpuTarget& target, const Chosen& chosen)
      : program_(program), steps_(steps), target_(target), chosen_(chosen), flow_(program, steps) {}

  void run() {
    for (int first = 0; first < static_cast<int>(steps_.size()); ++first) {
      if (!leaves_room(first)) continue;
      std::optional<Pair> best;
      for (int second = first + 1; second < std::min<int>(steps_.size(), first + kWindow); ++second) {
        if (!std::holds_alternative<Launch>(steps_[second].node)) break;
        if (!leaves_room(second)) continue;
        if (const auto found = pair_of(first, second); found && (!best || found->gain > best->gain))
          best = found;
      }
      if (best) apply(first--, *best);  // another step is there now
    }
  }

 private:
  struct Expected {
    double cycles;
    int64_t split;
    loop::Schedule schedule;
  };
  struct Pair {
    int second;   // its position
    double gain;  // the time one after the other, divided by the time together, minus 1
    loop::Schedule of_first, of_second;
  };

  NestId nest_id(int at) const { return std::get<Launch>(steps_[at].node).nest; }

  // Whether the step is a GEMM of two activations whose tiles are fewer than the multiprocessors.
  bool leaves_room(int at) const {
    const auto* launch = std::get_if<Launch>(&steps_[at].node);
    if (!launch || paired_.contains(launch->nest) || chosen_.contains(launch->nest)) return false;
    const Nest& nest = program_[launch->nest];
    if (!kernels::is_matrix(nest.schedule)) return false;
    const kernels::MatrixPlan plan = kernels::to_matrix_plan(nest.schedule);
    const auto contraction = loop::classify_contraction(nest);
    if (!plan.fewer.empty() || !contraction) return false;
    for (const auto* factor : {&contraction->a, &contraction->b})
      if (!factor->plain || program_[factor->plain->access.buffer].storage == loop::Storage::kParameter)
        return false;
    const auto size = [&](const std::vector<sym::Expr>& vars) {
      double product = 1;
      for (const loop::Dim& dim : nest.dims)
        if (std::ranges::count(vars, dim.var)) product *= typical(dim.extent, program_.facts);
      return product;
    };
    return size(plan.batch) * std::ceil(size(plan.rows) / plan.kernel->rows) *
               std::ceil(size(plan.columns) / plan.kernel->columns) <
           target_.multiprocessors;
  }

  // The two GEMMs at the same time, each on its share of the GPU according to its work; nothing if that takes
  // longer, or if one of them depends on the other.
  std::optional<Pair> pair_of(int first, int second) {
    if (!are_independent(flow_.effects(first), flow_.effects(second)) ||
        !may_move(program_, steps_, flow_, first, second))
      return std::nullopt;
    const NestId a = nest_id(first), b = nest_id(second);
    const double of_a = work(a) / (work(a) + work(b));
    const int share = static_cast<int>(std::clamp(std::round(of_a * kShares), 2.0, kShares - 2.0));
    const auto &a_alone = expected(a, kShares), &b_alone = expected(b, kShares);
    const auto &a_shared = expected(a, share), &b_shared = expected(b, kShares - share);
    if (!a_alone || !b_alone || !a_shared || !b_shared) return std::nullopt;
    // Without clusters, partial sums take a workspace, which launches at the same time may not share.
    if (!target_.clusters && a_shared->split > 1 && b_shared->split > 1) return std::nullopt;
    const double gain =
        (a_alone->cycles + b_alone->cycles) / std::max(a_shared->cycles, b_shared->cycles) - 1;
    if (gain < kGain) return std::nullopt;
    return Pair{second, gain, a_shared->schedule, b_shared->schedule};
  }

  void apply(int first, const Pair& pair) {
    program_[nest_id(first)].schedule = pair.of_first;
    program_[nest_id(pair.second)].schedule = pair.of_second;
    // The first launch moves to directly after the second.
    std::rotate(steps_.begin() + first, steps_.begin() + first + 1, steps_.begin() + pair.second + 1);
    for (int at = first; at < pair.second; ++at) flow_.move(at + 1, at);
    std::get<Launch>(steps_[pair.second].node).concurrent = true;
    paired_.insert({nest_id(pair.second - 1), nest_id(pair.second)});
  }

  double work(NestId id) const {
    const Nest& nest = program_[id];
    return typical_points(nest.dims, program_.facts) *
           typical_points(loop::classify_contraction(nest)->reduce->dims, program_.facts);
  }

  // The best plan on a share of the GPU.
  const std::optional<Expected>& expected(NestId id, int share) {
    const auto [found, is_new] = expected_.try_emplace({id, share});
    if (!is_new) return found->second;
    GpuTarget part = target_;
    part.multiprocessors = part.multiprocessors * share / kShares;
    part.memory_gb_s = part.memory_gb_s * share / kShares;
    part.l2_bytes = part.l2_bytes / kShares * share;
    const std::vector<RankedMatrixPlan> plans = matrix_plans(program_, program_[id], part);
    if (!plans.empty())
      found->second = {plans[0].cycles, plans[0].plan.split, kernels::to_schedule(plans[0].plan)};
    return found->second;
  }

  loop::Program& program_;
  loop::Steps& steps_;
  const GpuTarget& target_;
  const Chosen& chosen_;
  Flow flow_;
  std::set<NestId> paired_;
  std::map<std::pair<NestId, int>, std::optional<Expected>> expected_;
};

}  // namespace

void pair_gemms(loop::Program& program, const GpuTarget& target, const Chosen& chosen) {
  loop::for_each_block(program.steps,
                       [&](loop::Steps& steps) { Pairs(program, steps, target, chosen).run(); });
}

}  // namespace stridec::schedule
