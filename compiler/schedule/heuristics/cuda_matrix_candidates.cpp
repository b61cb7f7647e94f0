#include "compiler/schedule/heuristics/cuda_matrix_candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

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

// One schedule serves all sizes, so plans are evaluated at several; each symbol takes the size, clamped to
// its range. The sizes are close together, so that a partly filled last wave at one of them does not
// decide the choice. The smallest size stands for a single request, for which latency matters.
constexpr int64_t kSizes[] = {1,   2,   4,   8,   12,  16,   24,   32,   48,   64,   96,   128,
                              192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384};
constexpr double kOneRequest = 0.5;  // weight of the smallest size, relative to all others together

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

// Whether the access is contiguous along one of the dims.
bool is_contiguous_along(const loop::Program& program, const loop::Access& access, const Dims& dims,
                         const sym::Facts& facts) {
  const Expr offset = kernels::offset_of(program, access, facts);
  return std::ranges::any_of(dims, [&](const loop::Dim& dim) {
    const auto linear = sym::linear_in(offset, dim.var);
    return linear && linear->coefficient.is_const(1);
  });
}

// Whether no load is contiguous along a dim.
bool lies_across(const Dims& dims, const loop::Program& program,
                 const std::vector<const loop::Access*>& loads, const sym::Facts& facts) {
  return std::ranges::none_of(
      loads, [&](const loop::Access* access) { return is_contiguous_along(program, *access, dims, facts); });
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

class Search {
 public:
  Search(const loop::Program& program, const loop::Nest& original, const GpuTarget& target)
      : program_(program),
        target_(target),
        prologue_(kernels::match_row_prologue(original)),
        merges_(prologue_ ? std::vector<std::vector<Expr>>() : mergeable(program, original)),
        given_(prologue_ ? prologue_->product : with_merged(program, original, merges_)),
        pair_(kernels::match_dual_gemm(given_)),
        nest_(pair_ ? pair_->nest : given_),
        contraction_(kernels::match_contraction(nest_)) {}

  MatrixCandidates run(std::span<const SizesOf> given) {
    if (!is_product()) return {};
    find_epilogue();
    add_sizes(given);
    if (shapes_.empty()) return {};
    deepest_ = points_at(depth_, all_at(std::end(kSizes)[-1], facts_));
    for (const int columns : {wide_, 1 - wide_}) {
      const Operands operands = operands_of(columns);
      for (const MatrixKernel& kernel : kernels::matrix_kernels())
        if (serves(kernel, operands)) add_splits(kernel, operands);
    }
    return std::move(all_);
  }

 private:
  // The factors of the product as one choice of rows and columns reads them.
  struct Operands {
    int rows, columns;  // which factor
    MatrixPlan plan;    // without a kernel
    Lines row_lines, column_lines;
    bool panels;   // the columns' factor runs along the columns
    bool deep;     // both factors run along the depth, or can
    bool general;  // some elements are gathered one by one, which only the general kernel does
    bool copied;   // the columns' factor is more than a matrix that is loaded as it is
    bool early;    // the kernel may load weights before the previous one has ended

    bool gathers() const { return row_lines == Lines::kGathered || column_lines == Lines::kGathered; }
    bool has_windows() const { return row_lines == Lines::kWindows || column_lines == Lines::kWindows; }
  };

  bool is_turned(const Operands& operands) const { return operands.columns != wide_; }

  // Finds the dims of the product, in order; whether it is one that some kernel computes.
  bool is_product() {
    if (!contraction_) return false;
    // Epilogues have no lookups.
    if (std::ranges::any_of(
            nest_.body, [](const loop::Stmt& stmt) { return std::holds_alternative<loop::Bind>(stmt.node); }))
      return false;
    facts_ = std::make_shared<const sym::Facts>(kernels::facts_in(program_, nest_, *contraction_));
    dtypes_ = kernels::tensor_dtypes(nest_, *contraction_);
    tensor_ = dtypes_ && kernels::multiplies(target_, *dtypes_);
    if (!tensor_ && !is_float(contraction_->dtype)) return false;
    depth_ = contraction_->reduce->dims;
    for (const loop::Dim& dim : nest_.dims) {
      const bool in_a = factor(0).vars.contains(dim.var), in_b = factor(1).vars.contains(dim.var);
      (in_a == in_b ? batch_ : in_a ? sides_[0] : sides_[1]).push_back(dim);
    }
    if (sides_[0].empty() || sides_[1].empty()) return false;
    order_dims();
    return true;
  }

  const Factor& factor(int side) const { return contraction_->factors[side]; }
  DType dtype_of(int side) const {
    return tensor_ ? (*dtypes_)[static_cast<size_t>(side)] : contraction_->dtype;
  }

  void order_dims() {
    std::vector<const loop::Access*> stores;
    for (const loop::Stmt& stmt : nest_.body)
      if (const auto* store = std::get_if<loop::Store>(&stmt.node)) stores.push_back(&store->access);
    // The columns are the side along which stores are contiguous.
    const auto contiguous_stores = [&](const Dims& dims) {
      return std::ranges::count_if(stores, [&](const loop::Access* access) {
        return is_contiguous_along(program_, *access, dims, *facts_);
      });
    };
    wide_ = contiguous_stores(sides_[0]) > contiguous_stores(sides_[1]) ? 0 : 1;
    // The layout of a weight can be changed (order_weights.h), so the order of the depth follows the other
    // factor.
    std::vector<const loop::Access*> loads, weights;
    for (const Factor& each : contraction_->factors)
      for (const loop::Access* access : loads_of(each))
        (program_[access->buffer].storage == loop::Storage::kParameter ? weights : loads).push_back(access);
    if (loads.empty()) loads = weights;
    Dims &columns = sides_[wide_], &rows = sides_[1 - wide_];
    const std::vector<const loop::Access*> lines = loads_of(factor(1 - wide_));
    contiguous_last(columns, program_, stores, *facts_);
    contiguous_last(rows, program_, lines, *facts_);
    // In memory order the lines have one stride where possible.
    if (lines.size() == 1) sort_as_in_memory(rows, program_, *lines[0], *facts_);
    contiguous_last(depth_, program_, loads, *facts_);
    // A sum over several dims of two activations, as a weight's gradient has, steps through both in memory
    // order.
    if (weights.empty() && lies_across(depth_, program_, loads, *facts_))
      sort_as_in_memory(depth_, program_, *loads[0], *facts_);
  }

  void find_epilogue() {
    for (size_t i = 0; i < nest_.body.size(); ++i) {
      const auto* let = std::get_if<loop::Let>(&nest_.body[i].node);
      if (i > contraction_->at) statements_ += let ? loop::info(let->op).cost : 2;
      bool second = false;
      loop::for_each_result(nest_.body[i],
                            [&](loop::ValueId id) { second = second || (pair_ && id == pair_->second); });
      if (i != contraction_->at && !second) epilogue_.push_back(&nest_.body[i]);
    }
    narrow_ = kernels::results_in_registers(program_, epilogue_, sides_[1 - wide_]);
    // In a GEMM that is computed transposed, neighbouring threads store with a stride, and loads of the
    // epilogue that differ between elements have the same stride.
    const auto of_elements = std::ranges::count_if(epilogue_, [&](const loop::Stmt* stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt->node);
      return load && std::ranges::all_of(sides_, [&](const Dims& side) {
               return std::ranges::any_of(load->access.index,
                                          [&](Expr e) { return loop::depends_on_any(e, side); });
             });
    });
    across_ = 2 + 2 * static_cast<double>(of_elements);
  }

  double cycles_of_element(const MatrixKernel& kernel, int64_t split, const Operands& operands) const {
    const bool registers = kernel.is_wgmma() && split == 1 && narrow_ && !is_turned(operands) &&
                           kernels::GroupRegisters(kernel, (*dtypes_)[0], operands.gathers())
                               .have_results(kernels::cost_of(epilogue_));
    return (is_turned(operands) ? across_ : 1) * element_cycles(registers, statements_);
  }

  void add_sizes(std::span<const SizesOf> given) {
    all_.given = !given.empty();
    all_.single = prologue_.has_value();
    if (prologue_)
      for (const MatrixKernel& kernel : kernels::matrix_kernels())
        if (kernels::holds_columns(kernel))
          most_rows_ = std::max<double>(
              most_rows_, kernels::prologue_rows(kernel, prologue_->made().dims[0].extent.value()));
    for (const SizesOf& sizes : given) add_size(sizes);
    if (!given.empty()) return;
    for (const int64_t size : kSizes) {
      const SizesOf sizes = all_at(size, facts_);
      if (prologue_ && points_at(prologue_->rows.dims, sizes) > most_rows_) break;
      add_size(sizes);
    }
  }

  void add_size(const SizesOf& sizes) {
    const GemmShape shape{points_at(batch_, sizes), points_at(sides_[1 - wide_], sizes),
                          points_at(sides_[wide_], sizes), points_at(depth_, sizes)};
    if (!all_.given && !shapes_.empty() && shapes_.back() == shape) return;
    shapes_.push_back(shape);
    all_.sizes.push_back(sizes);
    all_.elements.push_back(shape.batch * shape.rows * shape.columns);
  }

  Operands operands_of(int columns) const {
    const int rows = 1 - columns;
    MatrixPlan plan{.batch = vars_of(batch_),
                    .rows = vars_of(sides_[rows]),
                    .columns = vars_of(sides_[columns]),
                    .depth = vars_of(depth_),
                    .merges = merges_};
    const auto lines = [&](int side) {
      return lines_of(program_, factor(side), sides_[side], depth_, *facts_);
    };
    const auto lies_deep = [&](int side) {
      return kernels::along_depth(program_, factor(side), sides_[side], depth_, *facts_);
    };
    const auto can_lie_deep = [&](int side) {
      return lies_deep(side) || orders_along(program_, nest_, factor(side), plan.depth);
    };
    const auto one_by_one = [&](int side) {
      Dims dims = nest_.dims;
      dims.insert(dims.end(), contraction_->reduce->dims.begin(), contraction_->reduce->dims.end());
      return !is_weight(program_, factor(side)) &&
             !kernels::loads_16_bytes(program_, dims, factor(side), sides_[side], depth_, dtype_of(side),
                                      *facts_);
    };
    Operands out{.rows = rows,
                 .columns = columns,
                 .plan = plan,
                 .row_lines = lines(rows),
                 .column_lines = lines(columns),
                 .panels = !lies_deep(columns),
                 .deep = can_lie_deep(0) && can_lie_deep(1),
                 .general = one_by_one(0) || one_by_one(1),
                 .copied = false,
                 .early = false};
    const auto* plain = kernels::load_of(program_, factor(columns), dtype_of(columns));
    out.copied = out.column_lines != Lines::kMatrix || !plain || !plain->access.mask.is_const(1) ||
                 sides_[columns].size() > 1;
    out.early = target_.dependent_launch && !out.gathers() &&
                (is_weight(program_, factor(0)) || is_weight(program_, factor(1)));
    return out;
  }

  bool serves(const MatrixKernel& kernel, const Operands& operands) const {
    const int bytes = byte_size(dtype_of(0));
    if (kernel.element_bytes != bytes || kernel.is_tensor() != tensor_) return false;
    if (kernel.is_wgmma() && !target_.wgmma) return false;
    const bool is_general = &kernel == &kernels::general_kernel(kernel);
    if (operands.general && !is_general) return false;
    if (kernels::wants_depth(kernel)) {
      if (!operands.deep && !is_general) return false;
      if (!kernels::has_room(kernel, (*dtypes_)[0])) return false;
    } else if (kernel.is_wgmma() && operands.panels && kernel.columns % 64) {
      return false;
    }
    // Addresses of gathered window elements cost threads more than the few multiply-adds of each.
    if (kernel.is_sliced() && (operands.gathers() || (operands.has_windows() && !target_.tma))) return false;
    // Threads that copy panels each have a fixed place in their lines.
    if (kernel.is_wgmma() && operands.panels && operands.copied &&
        kernel.loaders() % (kernel.columns * bytes / 16) != 0)
      return false;
    // Addresses of windows leave no registers for the sums of so many threads.
    if (kernel.is_wgmma() && kernel.workers() > 256 && operands.gathers()) return false;
    // With stores contiguous along rows: only kernels of few columns, or those for few rows.
    if (is_turned(operands) && !kernel.is_sliced() && (!kernel.is_wgmma() || kernel.columns > 32))
      return false;
    return !prologue_ || (kernels::holds_columns(kernel) &&
                          kernels::prologue_rows(kernel, static_cast<int64_t>(deepest_)) >= most_rows_ &&
                          loop::is_var_of(operands.plan.columns.back(), prologue_->rows.dims));
  }

  void add_splits(const MatrixKernel& kernel, const Operands& operands) {
    // In one column of tiles, at most.
    const double tiles = std::ceil(points_at(sides_[operands.rows], all_.sizes.back()) / kernel.rows);
    const double at_once = target_.multiprocessors * kernel.blocks_sm;
    for (const int64_t split : {1, 2, 4, 8}) {
      if (split > 1 && kernel.turns) return;
      const auto holding =
          prologue_ ? kernels::holding_columns(kernel, static_cast<int64_t>(deepest_), split, target_)
                    : std::nullopt;
      if (prologue_ ? !holding : kernels::shared_bytes(kernel, split) > target_.shared_bytes) continue;
      // Every block computes its rows; blocks of a second wave would compute them again with nothing else
      // in flight.
      if (prologue_ && at_once < static_cast<double>(split) * tiles) return;
      // Both sums of a dual GEMM's result belong to one block.
      if (pair_ && split > 1 && kernel.is_wgmma() && kernel.rows / split % (2 * kernels::kPairBlock)) return;
      // Each part of a split-K needs enough depth to be worth the exchange.
      if (split > 1 && deepest_ < static_cast<double>(4 * split * kernel.depth)) return;
      MatrixPlan plan = operands.plan;
      plan.kernel = &kernel;
      plan.split = split;
      add(plan, operands, holding ? &*holding : nullptr);
    }
  }

  // `holding`: the kernel that computes a prologue's rows; null without a prologue.
  void add(const MatrixPlan& plan, const Operands& operands, const MatrixKernel* holding) {
    MatrixCandidate made{plan, is_turned(operands), {}};
    const double element = cycles_of_element(*plan.kernel, plan.split, operands);
    const double prologue_cost = prologue_ ? static_cast<double>(scalar_cost(prologue_->made().body)) : 0;
    MatrixPlan costed = plan;
    if (holding) costed.kernel = holding;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      GemmShape shape = shapes_[i];
      if (made.turned) std::swap(shape.rows, shape.columns);
      const double made_rows = holding ? row_cycles(*holding, shape, prologue_cost) : 0;
      made.logs.push_back(all_.weight(i) *
                          std::log(made_rows + cycles(costed, operands.row_lines, operands.column_lines,
                                                      shape, element, operands.early, target_)));
    }
    all_.plans.push_back(std::move(made));
  }

  const loop::Program& program_;
  const GpuTarget& target_;
  const std::optional<kernels::NormPrologue> prologue_;
  const std::vector<std::vector<Expr>> merges_;
  const loop::Nest given_;  // with the row of a prologue in memory, and merged dims
  const std::optional<kernels::DualGemm> pair_;
  const loop::Nest nest_;  // one GEMM, also of a pair
  const std::optional<Contraction> contraction_;
  std::shared_ptr<const sym::Facts> facts_;  // inside the nest and its reduction
  std::optional<std::array<DType, 2>> dtypes_;
  bool tensor_ = false;
  Dims batch_, sides_[2], depth_;
  int wide_ = 1;  // the factor with the dims along which stores are contiguous: the GEMM's columns
  std::vector<const loop::Stmt*> epilogue_;  // all but the sum, or both sums of a dual GEMM
  double statements_ = 0;                    // cost of those after the sum
  bool narrow_ = false;                      // the epilogue fits registers
  double across_ = 1;                        // how much longer an element of a transposed result takes
  double most_rows_ = 0;                     // that a kernel with the prologue computes, at most
  double deepest_ = 0;                       // the depth at the largest sizes
  std::vector<GemmShape> shapes_;            // by size, with sides_[wide_] as columns
  MatrixCandidates all_;
};

}  // namespace

double points_at(const Dims& dims, const SizesOf& sizes) {
  double count = 1;
  for (const loop::Dim& dim : dims)
    count *= std::max(1.0, static_cast<double>(sym::evaluate(dim.extent, sizes).value_or(1)));
  return count;
}

double MatrixCandidates::weight(size_t size) const {
  return size == 0 && sizes.size() > 1 && !given ? kOneRequest * static_cast<double>(sizes.size() - 1) : 1;
}

MatrixCandidates matrix_candidates(const loop::Program& program, const loop::Nest& nest,
                                   const GpuTarget& target, std::span<const SizesOf> given) {
  return Search(program, nest, target).run(given);
}

}  // namespace stridec::schedule
