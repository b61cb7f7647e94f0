#include "compiler/schedule/heuristics/cuda_contraction.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

#include "compiler/base/text.h"
#include "compiler/kernels/dual_gemm.h"
#include "compiler/kernels/norm_prologue.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/cost/cuda_contraction_cost.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::schedule {
namespace {

using kernels::MatrixPlan;

// The geometric mean of cycles.
double mean(const MatrixCandidates& all, const std::vector<double>& logs) {
  return std::exp(std::accumulate(logs.begin(), logs.end(), 0.0) / all.weights());
}

// The plan that is best on average for the sizes from .. to - 1, and the sum of its logarithms.
struct SizeRange {
  size_t from, to;
  const MatrixCandidate* plan;
  double logs;
};

SizeRange best(const MatrixCandidates& all, size_t from, size_t to) {
  SizeRange best{from, to, nullptr, 0};
  for (const MatrixCandidate& plan : all.plans) {
    const auto first = plan.logs.begin();
    const double logs = std::accumulate(first + static_cast<std::ptrdiff_t>(from),
                                        first + static_cast<std::ptrdiff_t>(to), 0.0);
    if (!best.plan || logs < best.logs) best = {from, to, &plan, logs};
  }
  return best;
}

// Divides the sizes into up to five ascending ranges with a plan each; a further range has to pay.
std::vector<SizeRange> best_ranges(const MatrixCandidates& all) {
  const size_t kMost = all.single ? 1 : 5;
  constexpr double kWorthAnother = 0.01;  // least gain of another kernel, as a share of the time at all sizes
  const size_t sizes = all.sizes.size();
  const auto cost = [&](const std::vector<SizeRange>& ranges) {
    double sum = kWorthAnother * all.weights() * static_cast<double>(ranges.size());
    for (const SizeRange& range : ranges) sum += range.logs;
    return sum;
  };
  // Dynamic programming: ways[to] is the best division of the first `to` sizes into `count` ranges.
  std::vector<std::vector<SizeRange>> ways(sizes + 1);
  for (size_t to = 1; to <= sizes; ++to) ways[to] = {best(all, 0, to)};
  std::vector<SizeRange> out = ways[sizes];
  for (size_t count = 2; count <= std::min(kMost, sizes); ++count) {
    for (size_t to = sizes; to >= count; --to) {
      std::vector<SizeRange> most;
      for (size_t from = count - 1; from < to; ++from) {
        std::vector<SizeRange> way = ways[from];
        way.push_back(best(all, from, to));
        if (most.empty() || cost(way) < cost(most)) most = std::move(way);
      }
      ways[to] = std::move(most);
    }
    if (cost(ways[sizes]) < cost(out)) out = ways[sizes];
  }
  return out;
}

// The part of a schedule for GEMM results of fewer than `below` elements.
struct SchedulePart {
  int64_t below;  // unused in the last part
  const MatrixCandidate* plan;
};

// The parts that the model chooses.
std::vector<SchedulePart> parts_of(const MatrixCandidates& all, const std::vector<SizeRange>& ranges) {
  std::vector<SchedulePart> parts;
  for (size_t i = 0; i + 1 < ranges.size(); ++i) {
    const size_t end = ranges[i].to;
    parts.push_back(
        {static_cast<int64_t>(std::sqrt(all.elements[end - 1] * all.elements[end])), ranges[i].plan});
  }
  parts.push_back({0, ranges.back().plan});
  return parts;
}

MatrixPlan::Fewer fewer_of(const MatrixCandidate& few, const MatrixCandidate& many, int64_t below) {
  return {.below = below,
          .kernel = few.plan.kernel,
          .split = few.plan.split,
          .turned = few.turned != many.turned};
}

MatrixPlan whole(const std::vector<SchedulePart>& parts) {
  const MatrixCandidate& many = *parts.back().plan;
  MatrixPlan plan = many.plan;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i].plan == parts[i + 1].plan) continue;
    plan.fewer.push_back(fewer_of(*parts[i].plan, many, parts[i].below));
  }
  return plan;
}

// The parts of a schedule that consists of these plans; nothing for any other schedule.
std::optional<std::vector<SchedulePart>> parts_in(const MatrixCandidates& all,
                                                  const loop::Schedule& schedule) {
  loop::Schedule base = schedule;
  std::vector<loop::Directive> fewer;
  for (const loop::Directive& directive : schedule.directives)
    if (directive.name == "below") fewer.push_back(directive);
  std::erase_if(base.directives, [](const loop::Directive& d) { return d.name == "below"; });
  const auto many = std::find_if(all.plans.begin(), all.plans.end(), [&](const MatrixCandidate& plan) {
    return kernels::to_schedule(plan.plan) == base;
  });
  if (many == all.plans.end()) return std::nullopt;
  std::vector<SchedulePart> parts;
  int64_t below = 0;
  for (const loop::Directive& directive : fewer) {
    const auto few = std::find_if(all.plans.begin(), all.plans.end(), [&](const MatrixCandidate& plan) {
      MatrixPlan one = many->plan;
      one.fewer = {fewer_of(plan, *many, 0)};
      const loop::Directive wanted = kernels::to_schedule(one).directives.back();
      return std::equal(wanted.args.begin() + 1, wanted.args.end(),
                        directive.args.begin() + !directive.args.empty(), directive.args.end());
    });
    const std::string limit = directive.args.empty() ? "" : directive.args[0];
    int64_t next = 0;
    const auto [end, error] = std::from_chars(limit.data(), limit.data() + limit.size(), next);
    if (few == all.plans.end() || error != std::errc() || *end || next <= below) return std::nullopt;
    parts.push_back({next, &*few});
    below = next;
  }
  parts.push_back({0, &*many});
  return parts;
}

// The model's error depends on the kernel's block: what it shares, and how many blocks a multiprocessor
// holds.
std::string family_of(const MatrixCandidate& plan) {
  return cat(plan.plan.kernel->name, plan.plan.split > 1 ? " split" : "", plan.turned ? " turned" : "");
}

}  // namespace

std::vector<RankedMatrixPlan> matrix_plans(const loop::Program& program, const loop::Nest& nest,
                                           const GpuTarget& target) {
  MatrixCandidates all = matrix_candidates(program, nest, target);
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < all.plans.size(); ++i) order.emplace_back(mean(all, all.plans[i].logs), i);
  std::sort(order.begin(), order.end());
  std::vector<RankedMatrixPlan> ranked;
  for (const auto& [cycles, i] : order) ranked.push_back({std::move(all.plans[i].plan), cycles});
  return ranked;
}

std::vector<ExpectedAt> expected_of_product(const loop::Program& program, const loop::Nest& nest,
                                            const GpuTarget& target) {
  const MatrixCandidates all = matrix_candidates(program, nest, target);
  std::vector<ExpectedAt> out;
  if (all.plans.empty()) return out;
  for (const SizeRange& range : best_ranges(all))
    for (size_t i = range.from; i < range.to; ++i)
      out.push_back({all.sizes[i], std::exp(range.plan->logs[i] / all.weight(i)), all.weight(i)});
  return out;
}

double expected_of_memory(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                          const SizesOf& sizes) {
  double bytes = 0;
  for (const loop::Stmt& stmt : nest.body)
    if (const loop::Access* access = loop::access_of(stmt)) bytes += byte_size(program[access->buffer].dtype);
  return memory_cycles(bytes * points_at(nest.dims, sizes), target);
}

std::optional<loop::Schedule> choose_cuda_contraction(const loop::Program& program, const loop::Nest& nest,
                                                      const GpuTarget& target) {
  const MatrixCandidates all = matrix_candidates(program, nest, target);
  if (all.plans.empty()) return std::nullopt;
  const std::vector<SizeRange> ranges = best_ranges(all);
  const auto chosen = [&] { return kernels::to_schedule(whole(parts_of(all, ranges))); };
  // The pass that forms such a nest has already required tiles.
  if (kernels::match_row_prologue(nest)) return chosen();
  const loop::Nest product = kernels::product_of(nest);
  const auto contraction = kernels::match_contraction(product);
  // One thread per point reads both factors from caches: about 8 clocks for the 32 f32 multiply-adds of a
  // warp on each of 4 schedulers, and at least the latency while a multiprocessor has few warps. The caller
  // waits for the launch as well, so at small sizes little is to be gained either way.
  constexpr double kLaunch = 10000, kNaive = 1500;
  const int bytes = byte_size(contraction->dtype);
  double gain = 0;
  auto range = ranges.begin();
  for (size_t i = 0; i < all.sizes.size(); ++i) {
    if (i == range->to) ++range;
    const double points_there = points_at(product.dims, all.sizes[i]);
    const double work = points_there * points_at(contraction->reduce->dims, all.sizes[i]);
    const double threads = std::min(points_there, 2048.0 * target.multiprocessors);
    const double naive =
        work / threads * std::max(30.0, threads * bytes / target.multiprocessors / 64) + kNaive;
    gain += all.weight(i) *
            std::log((naive + kLaunch) / (std::exp(range->plan->logs[i] / all.weight(i)) + kLaunch));
  }
  if (gain < 0) return std::nullopt;
  return chosen();
}

std::vector<RankedSchedule> contraction_schedules(const loop::Program& program, const loop::Nest& nest,
                                                  const GpuTarget& target, std::span<const SizesOf> shapes,
                                                  const loop::Schedule* around) {
  const MatrixCandidates all = matrix_candidates(program, nest, target);
  if (all.plans.empty()) return {};
  const MatrixCandidates at = shapes.empty() ? all : matrix_candidates(program, nest, target, shapes);
  const auto given = around ? parts_in(all, *around) : std::nullopt;
  const std::vector<SchedulePart> parts = given ? *given : parts_of(all, best_ranges(all));
  const auto part_at = [&](size_t shape) {
    size_t part = 0;
    while (part + 1 < parts.size() && at.elements[shape] >= static_cast<double>(parts[part].below)) ++part;
    return part;
  };
  const auto number = [&](const MatrixCandidate* plan) {
    return static_cast<size_t>(plan - all.plans.data());
  };
  const auto ranked = [&](const std::vector<SchedulePart>& now) {
    double logs = 0;
    for (size_t s = 0; s < at.sizes.size(); ++s) logs += at.plans[number(now[part_at(s)].plan)].logs[s];
    return RankedSchedule{kernels::to_schedule(whole(now)), std::exp(logs / at.weights()), {}};
  };
  std::set<size_t> touched;
  for (size_t s = 0; s < at.sizes.size(); ++s) touched.insert(part_at(s));
  std::vector<RankedSchedule> out = {ranked(parts)};
  out[0].family = family_of(*parts[part_at(0)].plan);
  for (const size_t part : touched)
    for (const MatrixCandidate& plan : all.plans) {
      if (&plan == parts[part].plan) continue;
      std::vector<SchedulePart> now = parts;
      now[part].plan = &plan;
      out.push_back(ranked(now));
      out.back().family = family_of(plan);
    }
  return out;
}

bool is_contraction_schedule(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                             const loop::Schedule& schedule) {
  return parts_in(matrix_candidates(program, nest, target), schedule).has_value();
}

}  // namespace stridec::schedule
