#include "compiler/schedule/heuristics/cuda_contraction.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>

#include "compiler/base/text.h"
#include "compiler/kernels/dual_gemm.h"
#include "compiler/kernels/group_results.h"
#include "compiler/kernels/im2col.h"
#include "compiler/kernels/norm_prologue.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/access_map.h"
#include "compiler/schedule/analysis/nest_traits.h"
#include "compiler/schedule/cost/cuda_contraction_cost.h"
#include "compiler/schedule/directives/schedule.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "compiler/schedule/layout/order_weights.h"

namespace stridec::schedule {
namespace {

using kernels::Contraction;
using kernels::Factor;
using kernels::MatrixKernel;
using kernels::MatrixPlan;
using sym::Expr;
using Dims = std::vector<loop::Dim>;

// The product of the extents.
double points(const Dims& dims, const SizesOf& sizes) {
  double count = 1;
  for (const loop::Dim& dim : dims)
    count *= std::max(1.0, static_cast<double>(sym::evaluate(dim.extent, sizes).value_or(1)));
  return count;
}

// All symbols at `size`, clamped to their ranges.
SizesOf all_at(int64_t size, std::shared_ptr<const sym::Facts> facts) {
  return [size, facts = std::move(facts)](Expr var) -> std::optional<int64_t> {
    const sym::Interval range = facts->bounds(var);
    return std::max(std::min(size, range.hi), range.has_lo() ? range.lo : 1);
  };
}

// Moves the dim along which most accesses are contiguous to the end.
void contiguous_last(Dims& dims, const loop::Program& program,
                     const std::vector<const loop::Access*>& accesses, const sym::Facts& facts) {
  size_t best = dims.size();
  int most = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    int score = 0;
    for (const loop::Access* access : accesses) {
      const auto linear = sym::linear_in(kernels::offset_of(program, *access, facts), dims[d].var);
      if (linear && linear->coefficient.is_const(1)) ++score;
    }
    if (score >= most && score > 0) best = d, most = score;
  }
  if (best < dims.size())
    std::rotate(dims.begin() + static_cast<std::ptrdiff_t>(best),
                dims.begin() + static_cast<std::ptrdiff_t>(best) + 1, dims.end());
}

std::vector<const loop::Access*> loads_of(const Factor& factor) {
  std::vector<const loop::Access*> out;
  for (const loop::Stmt* stmt : factor.slice)
    if (const auto* load = std::get_if<loop::Load>(&stmt->node)) out.push_back(&load->access);
  return out;
}

// Whether no load is contiguous along a dim.
bool lies_across(const Dims& dims, const loop::Program& program,
                 const std::vector<const loop::Access*>& loads, const sym::Facts& facts) {
  return std::ranges::none_of(loads, [&](const loop::Access* access) {
    const Expr offset = kernels::offset_of(program, *access, facts);
    return std::ranges::any_of(dims, [&](const loop::Dim& dim) {
      const auto linear = sym::linear_in(offset, dim.var);
      return linear && linear->coefficient.is_const(1);
    });
  });
}

bool is_weight(const loop::Program& program, const Factor& factor) {
  const std::vector<const loop::Access*> loads = loads_of(factor);
  return loads.size() == 1 && program[loads[0]->buffer].storage == loop::Storage::kParameter;
}

// Whether the load is of a matrix whose lines and depth are at constant distances
// (MatrixSide::find_matrix()).
bool is_matrix(const loop::Program& program, const loop::Access& access, const Dims& lines, const Dims& depth,
               const sym::Facts& facts) {
  if (!access.mask.is_const(1)) return false;
  const Expr offset = kernels::offset_of(program, access, facts);
  return kernels::merged_step(loop::at_zero(offset, depth), lines, facts) &&
         kernels::merged_step(loop::at_zero(offset, lines), depth, facts);
}

Lines lines_of(const loop::Program& program, const Factor& factor, const Dims& lines, const Dims& depth,
               const sym::Facts& facts) {
  const std::vector<const loop::Access*> loads = loads_of(factor);
  if (depth.size() < 2 || is_weight(program, factor)) return Lines::kMatrix;
  if (loads.size() != 1 || factor.slice.size() > 2) return Lines::kGathered;
  if (is_matrix(program, *loads[0], lines, depth, facts)) return Lines::kMatrix;
  const bool deep = kernels::along_depth(program, factor, lines, depth, facts);
  return kernels::match_im2col(program, *loads[0], deep ? lines : depth, deep ? depth : lines, facts)
             ? Lines::kWindows
             : Lines::kGathered;
}

// One schedule serves all sizes, so plans are evaluated at several; each symbol takes the size, clamped to
// its range. The sizes are so close that how the last tiles fill the device at one of them decides nothing
// alone. The smallest size stands for a single request, for which latency matters.
constexpr int64_t kSizes[] = {1,   2,   4,   8,   12,  16,   24,   32,   48,   64,   96,   128,
                              192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384};
constexpr double kOneRequest = 0.5;  // weight of the smallest size, relative to all others together

// A plan with the logarithm of its cycles, times the size's weight, at every size that differs from the
// previous one.
struct Candidate {
  MatrixPlan plan;
  bool turned;
  std::vector<double> logs;
};

struct Candidates {
  std::vector<double> elements;  // of the GEMM's result, at every size
  std::vector<Candidate> plans;
  std::vector<SizesOf> sizes;
  bool given = false;   // the sizes are the caller's, and weigh the same
  bool single = false;  // one plan for all of them

  double weight(size_t size) const {
    return size == 0 && sizes.size() > 1 && !given ? kOneRequest * static_cast<double>(sizes.size() - 1) : 1;
  }
  double weights() const { return weight(0) + static_cast<double>(sizes.size() - 1); }
};

// The geometric mean of cycles.
double mean(const Candidates& all, const std::vector<double>& logs) {
  return std::exp(std::accumulate(logs.begin(), logs.end(), 0.0) / all.weights());
}

// Merges dims that all accesses step through as one, so that a row's address needs no division. Dims of
// weights stay separate, because the order of a weight's dims is not settled yet.
std::vector<std::vector<Expr>> mergeable(const loop::Program& program, const loop::Nest& nest) {
  const auto in_weight = [&](Expr var) {
    bool found = false;
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const loop::Access* access = loop::access_of(stmt);
      if (!access || program[access->buffer].storage != loop::Storage::kParameter) return;
      for (Expr index : access->index) found = found || sym::depends_on(index, var);
    });
    return found;
  };
  std::vector<Expr> dims;
  for (const loop::Dim& dim : nest.dims)
    if (!in_weight(dim.var)) dims.push_back(dim.var);
  std::vector<std::vector<Expr>> merges;
  loop::Nest now = nest;
  for (size_t b = dims.size(); b-- > 0;)
    for (size_t a = 0; a < dims.size();) {
      if (a == b || !can_merge(program, now, dims[a], dims[b])) {
        ++a;
        continue;
      }
      merges.push_back({dims[a], dims[b]});
      now = with_merged(program, std::move(now), {merges.back()});
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(a));
      if (a < b) --b;
      a = 0;
    }
  return merges;
}

// The candidates at the given sizes or, without any, at all sizes that the ranges allow. The plans are the
// same for both.
Candidates candidates(const loop::Program& program, const loop::Nest& original, const GpuTarget& target,
                      std::span<const SizesOf> given = {}) {
  const auto prologue = kernels::match_row_prologue(original);
  const std::vector<std::vector<Expr>> merges =
      prologue ? std::vector<std::vector<Expr>>() : mergeable(program, original);
  const loop::Nest given_nest = prologue ? prologue->product : with_merged(program, original, merges);
  const auto pair = kernels::match_dual_gemm(given_nest);
  const loop::Nest nest = pair ? pair->nest : given_nest;
  const auto contraction = kernels::match_contraction(nest);
  if (!contraction) return {};
  // Epilogues have no lookups.
  if (std::any_of(nest.body.begin(), nest.body.end(),
                  [](const loop::Stmt& stmt) { return std::holds_alternative<loop::Bind>(stmt.node); }))
    return {};
  const auto shared_facts =
      std::make_shared<const sym::Facts>(kernels::facts_in(program, nest, *contraction));
  const sym::Facts& facts = *shared_facts;
  const auto dtypes = kernels::tensor_dtypes(nest, *contraction);
  const bool tensor = dtypes && kernels::multiplies(target, *dtypes);
  if (!tensor && !is_float(contraction->dtype)) return {};
  const int bytes = byte_size(tensor ? (*dtypes)[0] : contraction->dtype);

  std::vector<const loop::Access*> stores;
  for (const loop::Stmt& stmt : nest.body)
    if (const auto* store = std::get_if<loop::Store>(&stmt.node)) stores.push_back(&store->access);
  Dims batch, sides[2], depth = contraction->reduce->dims;
  for (const loop::Dim& dim : nest.dims) {
    const bool in_a = contraction->factors[0].vars.contains(dim.var),
               in_b = contraction->factors[1].vars.contains(dim.var);
    (in_a == in_b ? batch : in_a ? sides[0] : sides[1]).push_back(dim);
  }
  if (sides[0].empty() || sides[1].empty()) return {};
  // The columns are the side along which stores are contiguous.
  auto contiguous_stores = [&](const Dims& dims) {
    return std::count_if(stores.begin(), stores.end(), [&](const loop::Access* access) {
      const Expr offset = kernels::offset_of(program, *access, facts);
      return std::any_of(dims.begin(), dims.end(), [&](const loop::Dim& dim) {
        const auto linear = sym::linear_in(offset, dim.var);
        return linear && linear->coefficient.is_const(1);
      });
    });
  };
  const int wide = contiguous_stores(sides[0]) > contiguous_stores(sides[1]) ? 0 : 1;
  // The layout of a weight can be changed (order_weights.h), so the order of the depth follows the other
  // factor.
  std::vector<const loop::Access*> loads, weights;
  for (const Factor& factor : contraction->factors)
    for (const loop::Access* access : loads_of(factor))
      (program[access->buffer].storage == loop::Storage::kParameter ? weights : loads).push_back(access);
  if (loads.empty()) loads = weights;
  contiguous_last(sides[wide], program, stores, facts);
  contiguous_last(sides[1 - wide], program, loads_of(contraction->factors[1 - wide]), facts);
  // In memory order the lines have one stride where possible.
  if (const auto lines = loads_of(contraction->factors[1 - wide]); lines.size() == 1)
    sort_as_in_memory(sides[1 - wide], program, *lines[0], facts);
  contiguous_last(depth, program, loads, facts);
  // A sum over several dims of two activations, as a weight's gradient has, steps through both in memory
  // order.
  if (weights.empty() && lies_across(depth, program, loads, facts))
    sort_as_in_memory(depth, program, *loads[0], facts);

  double statements = 0;                    // cost of those after the sum
  std::vector<const loop::Stmt*> epilogue;  // all but the sum, or both sums of a dual GEMM
  for (size_t i = 0; i < nest.body.size(); ++i) {
    const auto* let = std::get_if<loop::Let>(&nest.body[i].node);
    if (i > contraction->at) statements += let ? loop::info(let->op).cost : 2;
    bool second = false;
    loop::for_each_result(nest.body[i],
                          [&](loop::ValueId id) { second = second || (pair && id == pair->second); });
    if (i != contraction->at && !second) epilogue.push_back(&nest.body[i]);
  }
  const bool narrow = kernels::results_in_registers(program, epilogue, sides[1 - wide]);
  // In a GEMM that is computed transposed, neighbouring threads store with a stride, and loads of the
  // epilogue that differ between elements have the same stride.
  const auto of_elements = std::ranges::count_if(epilogue, [&](const loop::Stmt* stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    return load && std::ranges::all_of(sides, [&](const Dims& side) {
             return std::ranges::any_of(load->access.index,
                                        [&](Expr e) { return loop::depends_on_any(e, side); });
           });
  });
  const double across = 2 + 2 * static_cast<double>(of_elements);
  const auto element_of = [&](const MatrixKernel& kernel, int64_t split, bool gathers, bool turned) {
    const bool registers =
        kernel.is_wgmma() && split == 1 && narrow && !turned &&
        kernels::GroupRegisters(kernel, (*dtypes)[0], gathers).have_results(kernels::cost_of(epilogue));
    return (turned ? across : 1) * element_cycles(registers, statements);
  };
  double most_rows = 0;
  if (prologue)
    for (const MatrixKernel& kernel : kernels::matrix_kernels())
      if (kernels::holds_columns(kernel))
        most_rows = std::max<double>(most_rows,
                                     kernels::prologue_rows(kernel, prologue->made().dims[0].extent.value()));
  const double prologue_cost = prologue ? static_cast<double>(scalar_cost(prologue->made().body)) : 0;
  Candidates all;
  all.given = !given.empty();
  all.single = prologue.has_value();
  std::vector<GemmShape> shapes;  // with sides[wide] as columns
  const auto add = [&](const SizesOf& sizes) {
    const GemmShape shape{points(batch, sizes), points(sides[1 - wide], sizes), points(sides[wide], sizes),
                          points(depth, sizes)};
    if (!all.given && !shapes.empty() && shapes.back() == shape) return;
    shapes.push_back(shape);
    all.sizes.push_back(sizes);
    all.elements.push_back(shape.batch * shape.rows * shape.columns);
  };
  for (const SizesOf& sizes : given) add(sizes);
  if (given.empty())
    for (const int64_t size : kSizes) {
      const SizesOf sizes = all_at(size, shared_facts);
      if (prologue && points(prologue->rows.dims, sizes) > most_rows) break;
      add(sizes);
    }
  if (shapes.empty()) return {};
  const auto blocks_at_once = [&](const MatrixKernel& kernel) {
    return static_cast<double>(target.multiprocessors * kernel.blocks_sm);
  };
  const auto tiles_of = [&](const MatrixKernel& kernel, int rows) {  // in one column of tiles, at most
    return std::ceil(points(sides[rows], all.sizes.back()) / kernel.rows);
  };
  const double deepest = points(depth, all_at(std::end(kSizes)[-1], shared_facts));
  for (const int columns : {wide, 1 - wide}) {
    const int rows = 1 - columns;
    MatrixPlan plan{.batch = vars_of(batch),
                    .rows = vars_of(sides[rows]),
                    .columns = vars_of(sides[columns]),
                    .depth = vars_of(depth),
                    .merges = merges};
    const auto lies_deep = [&](int side) {
      return kernels::along_depth(program, contraction->factors[side], sides[side], depth, facts);
    };
    const bool panels = !lies_deep(columns);
    const Lines rows_lines = lines_of(program, contraction->factors[rows], sides[rows], depth, facts),
                columns_lines =
                    lines_of(program, contraction->factors[columns], sides[columns], depth, facts);
    const bool deep = (lies_deep(0) || orders_along(program, nest, contraction->factors[0], plan.depth)) &&
                      (lies_deep(1) || orders_along(program, nest, contraction->factors[1], plan.depth));
    // Elements that are gathered one by one are only supported by the general kernel.
    const auto one_by_one = [&](int side) {
      const Factor& factor = contraction->factors[side];
      return !is_weight(program, factor) &&
             !kernels::loads_16_bytes(program, nest, *contraction, factor, sides[side], depth,
                                      tensor ? (*dtypes)[static_cast<size_t>(side)] : contraction->dtype,
                                      facts);
    };
    const bool general = one_by_one(0) || one_by_one(1);
    const bool gathered = rows_lines == Lines::kGathered || columns_lines == Lines::kGathered;
    const bool early = target.dependent_launch && !gathered &&
                       std::any_of(std::begin(contraction->factors), std::end(contraction->factors),
                                   [&](const Factor& factor) { return is_weight(program, factor); });
    const auto* plain =
        kernels::load_of(program, contraction->factors[columns],
                         tensor ? (*dtypes)[static_cast<size_t>(columns)] : contraction->dtype);
    const bool copied = columns_lines != Lines::kMatrix || !plain || !plain->access.mask.is_const(1) ||
                        sides[columns].size() > 1;
    for (const MatrixKernel& kernel : kernels::matrix_kernels()) {
      if (kernel.element_bytes != bytes || kernel.is_tensor() != tensor) continue;
      if (kernel.is_wgmma() && !target.wgmma) continue;
      if (general && &kernel != &kernels::general_kernel(kernel)) continue;
      if (kernels::wants_depth(kernel)) {
        if (!deep && &kernel != &kernels::general_kernel(kernel)) continue;
        if (!kernels::has_room(kernel, (*dtypes)[0])) continue;
      } else if (kernel.is_wgmma() && panels && kernel.columns % 64) {
        continue;
      }
      // Addresses of gathered window elements cost threads more than the few multiply-adds of each.
      const bool windows = rows_lines == Lines::kWindows || columns_lines == Lines::kWindows;
      if (kernel.is_sliced() && (gathered || (windows && !target.tma))) continue;
      // Threads that copy panels each have a fixed place in their lines.
      if (kernel.is_wgmma() && panels && copied && kernel.loaders() % (kernel.columns * bytes / 16) != 0)
        continue;
      // Addresses of windows leave no registers for the sums of so many threads.
      if (kernel.is_wgmma() && kernel.workers() > 256 && gathered) continue;
      // With stores contiguous along rows: only kernels of few columns, or those for few rows.
      if (columns != wide && !kernel.is_sliced() && (!kernel.is_wgmma() || kernel.columns > 32)) continue;
      if (prologue && !(kernels::holds_columns(kernel) &&
                        kernels::prologue_rows(kernel, static_cast<int64_t>(deepest)) >= most_rows &&
                        loop::is_var_of(plan.columns.back(), prologue->rows.dims)))
        continue;
      plan.kernel = &kernel;
      for (int64_t split : {1, 2, 4, 8}) {
        if (split > 1 && kernel.turns) break;
        const auto holding =
            prologue ? kernels::holding_columns(kernel, static_cast<int64_t>(deepest), split, target)
                     : std::nullopt;
        if (prologue ? !holding : kernels::shared_bytes(kernel, split) > target.shared_bytes) continue;
        // Every block computes its rows; blocks of a second wave would compute them again with nothing else
        // in flight.
        if (prologue && blocks_at_once(kernel) < split * tiles_of(kernel, rows)) break;
        // Both sums of a dual GEMM's result belong to one block.
        if (pair && split > 1 && kernel.is_wgmma() && kernel.rows / split % (2 * kernels::kPairBlock)) break;
        // Each part of a split-K needs enough depth to be worth the exchange.
        if (split > 1 && deepest < double(4 * split * kernel.depth)) break;
        plan.split = split;
        const bool turned = columns != wide;
        Candidate& made = all.plans.emplace_back(Candidate{plan, turned, {}});
        for (size_t i = 0; i < shapes.size(); ++i) {
          GemmShape shape = shapes[i];
          if (turned) std::swap(shape.rows, shape.columns);
          MatrixPlan costed = plan;
          if (holding) costed.kernel = &*holding;
          const double made_rows = prologue ? row_cycles(*holding, shape, prologue_cost) : 0;
          made.logs.push_back(
              all.weight(i) *
              std::log(made_rows + cycles(costed, rows_lines, columns_lines, shape,
                                          element_of(kernel, split, gathered, turned), early, target)));
        }
      }
    }
  }
  return all;
}

// The plan that is best on average for the sizes from .. to - 1, and the sum of its logarithms.
struct Range {
  size_t from, to;
  const Candidate* plan;
  double logs;
};

Range best(const Candidates& all, size_t from, size_t to) {
  Range best{from, to, nullptr, 0};
  for (const Candidate& plan : all.plans) {
    const auto first = plan.logs.begin();
    const double logs = std::accumulate(first + static_cast<std::ptrdiff_t>(from),
                                        first + static_cast<std::ptrdiff_t>(to), 0.0);
    if (!best.plan || logs < best.logs) best = {from, to, &plan, logs};
  }
  return best;
}

// Divides the sizes into up to five ascending ranges with a plan each; a further range has to pay.
std::vector<Range> best_ranges(const Candidates& all) {
  const size_t kMost = all.single ? 1 : 5;
  constexpr double kWorthAnother = 0.01;  // least gain of another kernel, as a share of the time at all sizes
  const size_t sizes = all.sizes.size();
  const auto cost = [&](const std::vector<Range>& ranges) {
    double sum = kWorthAnother * all.weights() * static_cast<double>(ranges.size());
    for (const Range& range : ranges) sum += range.logs;
    return sum;
  };
  // Dynamic programming: ways[to] is the best division of the first `to` sizes into `count` ranges.
  std::vector<std::vector<Range>> ways(sizes + 1);
  for (size_t to = 1; to <= sizes; ++to) ways[to] = {best(all, 0, to)};
  std::vector<Range> out = ways[sizes];
  for (size_t count = 2; count <= std::min(kMost, sizes); ++count) {
    for (size_t to = sizes; to >= count; --to) {
      std::vector<Range> most;
      for (size_t from = count - 1; from < to; ++from) {
        std::vector<Range> way = ways[from];
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
struct Part {
  int64_t below;  // unused in the last part
  const Candidate* plan;
};

// The parts that the model chooses.
std::vector<Part> parts_of(const Candidates& all, const std::vector<Range>& ranges) {
  std::vector<Part> parts;
  for (size_t i = 0; i + 1 < ranges.size(); ++i) {
    const size_t end = ranges[i].to;
    parts.push_back(
        {static_cast<int64_t>(std::sqrt(all.elements[end - 1] * all.elements[end])), ranges[i].plan});
  }
  parts.push_back({0, ranges.back().plan});
  return parts;
}

MatrixPlan::Fewer fewer_of(const Candidate& few, const Candidate& many, int64_t below) {
  return {.below = below,
          .kernel = few.plan.kernel,
          .split = few.plan.split,
          .turned = few.turned != many.turned};
}

MatrixPlan whole(const std::vector<Part>& parts) {
  const Candidate& many = *parts.back().plan;
  MatrixPlan plan = many.plan;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i].plan == parts[i + 1].plan) continue;
    plan.fewer.push_back(fewer_of(*parts[i].plan, many, parts[i].below));
  }
  return plan;
}

// The parts of a schedule that consists of these plans; nothing for any other schedule.
std::optional<std::vector<Part>> parts_in(const Candidates& all, const loop::Schedule& schedule) {
  loop::Schedule base = schedule;
  std::vector<loop::Directive> fewer;
  for (const loop::Directive& directive : schedule.directives)
    if (directive.name == "below") fewer.push_back(directive);
  std::erase_if(base.directives, [](const loop::Directive& d) { return d.name == "below"; });
  const auto many = std::find_if(all.plans.begin(), all.plans.end(), [&](const Candidate& plan) {
    return kernels::to_schedule(plan.plan) == base;
  });
  if (many == all.plans.end()) return std::nullopt;
  std::vector<Part> parts;
  int64_t below = 0;
  for (const loop::Directive& directive : fewer) {
    const auto few = std::find_if(all.plans.begin(), all.plans.end(), [&](const Candidate& plan) {
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
std::string family_of(const Candidate& plan) {
  return cat(plan.plan.kernel->name, plan.plan.split > 1 ? " split" : "", plan.turned ? " turned" : "");
}

}  // namespace

std::vector<RankedMatrixPlan> matrix_plans(const loop::Program& program, const loop::Nest& nest,
                                           const GpuTarget& target) {
  Candidates all = candidates(program, nest, target);
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < all.plans.size(); ++i) order.emplace_back(mean(all, all.plans[i].logs), i);
  std::sort(order.begin(), order.end());
  std::vector<RankedMatrixPlan> ranked;
  for (const auto& [cycles, i] : order) ranked.push_back({std::move(all.plans[i].plan), cycles});
  return ranked;
}

std::vector<ExpectedAt> expected_of_product(const loop::Program& program, const loop::Nest& nest,
                                            const GpuTarget& target) {
  const Candidates all = candidates(program, nest, target);
  std::vector<ExpectedAt> out;
  if (all.plans.empty()) return out;
  for (const Range& range : best_ranges(all))
    for (size_t i = range.from; i < range.to; ++i)
      out.push_back({all.sizes[i], std::exp(range.plan->logs[i] / all.weight(i)), all.weight(i)});
  return out;
}

double expected_of_memory(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                          const SizesOf& sizes) {
  double bytes = 0;
  for (const loop::Stmt& stmt : nest.body)
    if (const loop::Access* access = loop::access_of(stmt)) bytes += byte_size(program[access->buffer].dtype);
  return memory_cycles(bytes * points(nest.dims, sizes), target);
}

std::optional<loop::Schedule> choose_cuda_contraction(const loop::Program& program, const loop::Nest& nest,
                                                      const GpuTarget& target) {
  const Candidates all = candidates(program, nest, target);
  if (all.plans.empty()) return std::nullopt;
  const std::vector<Range> ranges = best_ranges(all);
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
    const double points_there = points(product.dims, all.sizes[i]);
    const double work = points_there * points(contraction->reduce->dims, all.sizes[i]);
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
  const Candidates all = candidates(program, nest, target);
  if (all.plans.empty()) return {};
  const Candidates at = shapes.empty() ? all : candidates(program, nest, target, shapes);
  const auto given = around ? parts_in(all, *around) : std::nullopt;
  const std::vector<Part> parts = given ? *given : parts_of(all, best_ranges(all));
  const auto part_at = [&](size_t shape) {
    size_t part = 0;
    while (part + 1 < parts.size() && at.elements[shape] >= static_cast<double>(parts[part].below)) ++part;
    return part;
  };
  const auto number = [&](const Candidate* plan) { return static_cast<size_t>(plan - all.plans.data()); };
  const auto ranked = [&](const std::vector<Part>& now) {
    double logs = 0;
    for (size_t s = 0; s < at.sizes.size(); ++s) logs += at.plans[number(now[part_at(s)].plan)].logs[s];
    return RankedSchedule{kernels::to_schedule(whole(now)), std::exp(logs / at.weights()), {}};
  };
  std::set<size_t> touched;
  for (size_t s = 0; s < at.sizes.size(); ++s) touched.insert(part_at(s));
  std::vector<RankedSchedule> out = {ranked(parts)};
  out[0].family = family_of(*parts[part_at(0)].plan);
  for (const size_t part : touched)
    for (const Candidate& plan : all.plans) {
      if (&plan == parts[part].plan) continue;
      std::vector<Part> now = parts;
      now[part].plan = &plan;
      out.push_back(ranked(now));
      out.back().family = family_of(plan);
    }
  return out;
}

bool is_contraction_schedule(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                             const loop::Schedule& schedule) {
  return parts_in(candidates(program, nest, target), schedule).has_value();
}

}  // namespace stridec::schedule
