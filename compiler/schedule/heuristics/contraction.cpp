#include "compiler/schedule/heuristics/contraction.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/base/sort.h"
#include "compiler/kernels/block_quantized.h"
#include "compiler/kernels/gemm_lines.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/contraction_cost.h"
#include "compiler/schedule/heuristics/window.h"

namespace stridec::schedule {
namespace {

using kernels::Contraction;
using kernels::Factor;
using kernels::GemmKernel;
using kernels::GemmPlan;
using loop::Dim;
using sym::Expr;
using Dims = std::vector<Dim>;

struct Problem {
  const loop::Program& program;
  const loop::Nest& nest;
  const Contraction& contraction;
  sym::Facts facts;
  std::vector<const loop::Stmt*> epilogue;
};

double points(const Problem& p, const Dims& dims) { return typical_points(dims, p.facts); }

// Whether every load of the factor has stride 0 or 1 along the dim, and at least one has stride 1.
bool lies_along(const Problem& p, const Factor& factor, Expr var) {
  bool moves = false;
  const bool all = std::all_of(factor.slice.begin(), factor.slice.end(), [&](const loop::Stmt* stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    if (!load) return true;
    const auto stride = loop::stride_of(p.program, load->access, var, p.facts);
    moves = moves || (stride && stride->is_const(1));
    return stride && (stride->is_const(0) || stride->is_const(1));
  });
  return all && moves;
}

// ---- columns ----------------------------------------------------------------------------------------------

// The stride of the access along the dim; 0 if it is not constant.
int64_t step_along(const Problem& p, const loop::Access& access, Expr var) {
  const auto linear = sym::linear_in(kernels::offset_of(p.program, access, p.facts), var);
  return linear ? sym::as_const(linear->coefficient).value_or(0) : 0;
}

ColumnAccess access_along(const Problem& p, const loop::Access& access, Expr var) {
  constexpr int64_t kSets = 64 * 64;  // bytes after which addresses map to the same set of L1
  if (std::none_of(access.index.begin(), access.index.end(), [&](Expr e) { return sym::depends_on(e, var); }))
    return ColumnAccess::kVectors;
  const int64_t step = step_along(p, access, var);
  if (step == 1) return ColumnAccess::kVectors;
  const int64_t apart = std::gcd(step * byte_size(p.program[access.buffer].dtype), kSets);
  return step != 0 && 4 * apart >= kSets ? ColumnAccess::kSameSets : ColumnAccess::kApart;
}

// The dims that are vectorised as one. The innermost is the dim that is contiguous in the most stores and in
// b; the dims outside of it are those that continue it in every access.
Dims choose_columns(const Problem& p, const Dims& candidates, const Factor& b, bool packed) {
  if (candidates.empty()) return {};
  auto score = [&](const Dim& dim) {
    double s = std::min(64.0, typical(dim.extent, p.facts)) / 64;
    for (const loop::Stmt* stmt : p.epilogue) {
      const auto* store = std::get_if<loop::Store>(&stmt->node);
      if (store && step_along(p, store->access, dim.var) == 1) s += 4;
    }
    if (!packed && b.load && step_along(p, b.load->access, dim.var) == 1) s += 2;
    return s;
  };
  size_t inner = 0;
  for (size_t d = 1; d < candidates.size(); ++d) {
    if (score(candidates[d]) >= score(candidates[inner])) inner = d;
  }
  auto runs_as_one = [&](const Dims& dims) {
    auto merges = [&](const loop::Access& access) {
      return !depends_on_any(access.mask, dims) &&
             kernels::merged_step(kernels::offset_of(p.program, access, p.facts), dims, p.facts).has_value();
    };
    auto all = [&](const std::vector<const loop::Stmt*>& statements) {
      return std::all_of(statements.begin(), statements.end(), [&](const loop::Stmt* stmt) {
        if (const loop::Access* access = loop::access_of(*stmt)) return merges(*access);
        bool free = true;
        loop::for_each_expr(*stmt, [&](Expr e) { free = free && !depends_on_any(e, dims); });
        return free;
      });
    };
    return all(p.epilogue) && all(b.slice);
  };
  Dims columns = {candidates[inner]};
  for (size_t d = inner; d-- > 0;) {
    Dims longer = columns;
    longer.insert(longer.begin(), candidates[d]);
    if (!runs_as_one(longer)) break;
    columns = std::move(longer);
  }
  return columns;
}

// ---- k ----------------------------------------------------------------------------------------------------

// The dims of k along which a is contiguous, outermost first; empty if a cannot be read in place.
Dims choose_run(const Problem& p, const Factor& a, const Dims& k) {
  if (!a.load) return {};
  const loop::Access& access = a.load->access;
  const Expr mask = sym::simplify(access.mask, p.facts);
  if (!mask.is_const(1) && (a.load->fill.f != 0 || std::signbit(a.load->fill.f))) return {};
  const Expr offset = kernels::offset_of(p.program, access, p.facts);
  Dims run;
  Expr step = 1;
  for (bool grown = true; grown;) {
    grown = false;
    for (const Dim& dim : k) {
      const bool taken = std::any_of(run.begin(), run.end(), [&](const Dim& d) { return d.var == dim.var; });
      if (taken || sym::depends_on(mask, dim.var)) continue;
      const auto linear = sym::linear_in(offset, dim.var);
      if (!linear || !(linear->coefficient == step || p.facts.holds(sym::eq(linear->coefficient, step))))
        continue;
      run.insert(run.begin(), dim);
      step = sym::simplify(step * dim.extent, p.facts);
      grown = true;
      break;
    }
  }
  return run;
}

Dims without(const Dims& dims, const Dims& taken) {
  Dims rest;
  for (const Dim& dim : dims) {
    if (std::none_of(taken.begin(), taken.end(), [&](const Dim& t) { return t.var == dim.var; }))
      rest.push_back(dim);
  }
  return rest;
}

// ---- b ----------------------------------------------------------------------------------------------------

// Whether b depends on weights alone, at indices known at compile time, and packing does not make it much
// larger than the weights.
bool can_pack(const Problem& p, const Factor& b, int element_bytes, const Dims& batch, const Dims& columns,
              const Dims& k) {
  constexpr double kGrowth = 2;
  double made = element_bytes, given = 0;
  for (const Dims* dims : {&batch, &columns, &k}) {
    for (const Dim& dim : *dims) {
      if (dims == &batch && !b.vars.contains(dim.var)) continue;
      const auto extent = sym::as_const(dim.extent);
      if (!extent) return false;
      made *= static_cast<double>(*extent);
    }
  }
  for (const loop::Stmt* stmt : b.slice) {
    bool constant = true;
    loop::for_each_expr(*stmt, [&](Expr e) {
      for (Expr var : sym::free_vars(e)) constant = constant && sym::is_index(var);
    });
    if (!constant) return false;
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    if (!load) continue;
    const loop::Buffer& buffer = p.program[load->access.buffer];
    if (buffer.storage != loop::Storage::kParameter) return false;
    given += static_cast<double>(sym::as_const(loop::element_count(buffer.shape)).value_or(0)) *
             byte_size(buffer.dtype);
  }
  return made > 0 && made <= kGrowth * given;
}

bool made_of_weights(const Problem& p, const Factor& b) {
  return std::all_of(b.slice.begin(), b.slice.end(), [&](const loop::Stmt* stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    return !load || p.program[load->access.buffer].storage == loop::Storage::kParameter;
  });
}

// Whether b is an i8 weight all of whose values are in [-most, most].
bool is_small(const loop::Program& program, const Factor& b, int most) {
  if (!b.load) return false;
  const loop::Buffer& buffer = program[b.load->access.buffer];
  if (!loop::is_constant(buffer) || !buffer.weight.bytes || buffer.dtype != DType::kI8) return false;
  const auto* bytes = reinterpret_cast<const int8_t*>(buffer.weight.bytes);
  return std::all_of(bytes, bytes + buffer.weight.size,
                     [&](int8_t value) { return value >= -most && value <= most; });
}

// The stride along k of b's rows if they are contiguous columns.
std::optional<Expr> row_step(const Problem& p, const Factor& b, const Dims& batch, const Dims& columns,
                             const Dims& k) {
  if (!b.load || !b.load->access.mask.is_const(1) || columns.empty()) return std::nullopt;
  const Expr offset = kernels::offset_of(p.program, b.load->access, p.facts);
  const auto column = kernels::merged_step(offset, columns, p.facts);
  const auto step = kernels::merged_step(at_zero(offset, columns), k, p.facts);
  return column && column->is_const(1) && step && !depends_on_any(*step, batch) ? step : std::nullopt;
}

// ---- plans ------------------------------------------------------------------------------------------------

bool is_multiple(const Problem& p, const Dims& dims, int64_t divisor) {
  Expr extent = 1;
  for (const Dim& dim : dims) extent *= dim.extent;
  return divisor == 1 || p.facts.holds(sym::eq(sym::mod(extent, divisor), 0));
}

// Splits the dims of k into the plan's run and its segments (kernels/gemm_plan.h). With `tap`, which plans
// that copy lines have, the first segment is `tap`.
void place_k(const Problem& p, const Factor& a, const GemmKernel& like, const Dim* tap, GemmPlan& plan,
             Dims& run, Dims& segments) {
  const Dims& k = p.contraction.reduce->dims;
  run = plan.a == GemmPlan::A::kDirect ? choose_run(p, a, k) : k;
  if (plan.a != GemmPlan::A::kDirect) {
    // The order of k is free, so the dim that is innermost in a goes innermost.
    for (size_t d = 0; d < run.size(); ++d) {
      if (lies_along(p, a, run[d].var))
        std::rotate(run.begin() + static_cast<std::ptrdiff_t>(d),
                    run.begin() + static_cast<std::ptrdiff_t>(d) + 1, run.end());
    }
  }
  segments = without(k, run);
  if (tap) {
    // Short runs allow short pieces of a panel.
    segments = {*tap};
    run = without(run, segments);
    while (run.size() > 1 && is_multiple(p, Dims(run.begin() + 1, run.end()), like.step())) {
      segments.push_back(run[0]);
      run.erase(run.begin());
    }
  }
  plan.segments = vars_of(segments), plan.run = vars_of(run);
}

// Whether the rows have one stride.
bool rows_step(const Problem& p, const Factor& a, const Dims& rows, const Dims& run, const Dims& segments) {
  if (!a.load || !sym::simplify(a.load->access.mask, p.facts).is_const(1)) return false;
  const auto form = kernels::linear_form(at_zero(kernels::offset_of(p.program, a.load->access, p.facts), run),
                                         vars_of(segments));
  if (!form || !kernels::merged_step(form->rest, rows, p.facts)) return false;
  return std::none_of(form->coefficients.begin(), form->coefficients.end(),
                      [&](Expr coefficient) { return depends_on_any(coefficient, rows); });
}

// A small value of a symbolic number of rows, at which the cost model adds cycles too; 0 if the number is
// constant or typically large. The value is an eighth of the typical one, plus 1, because most sizes are not
// a multiple of a tile's rows.
double few_rows(const Problem& p, const Dims& rows) {
  constexpr double kMany = 512, kPart = 8;
  const double typical = points(p, rows);
  const Expr extent = extent_of(rows);
  if (sym::as_const(extent) || typical > kMany) return 0;
  const sym::Interval range = p.facts.bounds(extent);
  const double few =
      std::max(std::floor(typical / kPart) + 1, range.has_lo() ? static_cast<double>(range.lo) : 1);
  return few < typical ? few : 0;
}

bool alike(const GemmKernel& x, const GemmKernel& y) {
  return x.a == y.a && x.b == y.b && x.dtype == y.dtype && x.step() == y.step() && x.deep == y.deep;
}

// The block length along k in which a's values are integers times one scale and b consists of packed values
// with the same blocks, so that bytes can be multiplied. 0 if that gains nothing.
int64_t byte_blocks(const Problem& p, const Factor& a, const Dims& run, const Dims& segments,
                    const std::vector<kernels::QuantizedPart>& parts, const CpuTarget& target) {
  constexpr int64_t kLanes = 16;
  const int64_t block = p.contraction.reduce->byte_blocks;
  const auto depth = sym::as_const(extent_of(run));
  if (block == 0 || block % kLanes != 0 || !target.vnni || !segments.empty() || !depth ||
      *depth % block != 0 || !a.load || !sym::simplify(a.load->access.mask, p.facts).is_const(1))
    return 0;
  int numbers = 0;
  for (const kernels::QuantizedPart& part : parts) {
    if (part.bits == 0 && (part.step == 0 || part.step == block)) continue;
    if (part.step != 0 && part.step < block && part.bits >= 2 && kLanes % part.per_word() == 0 &&
        part.per_word() < block && part.low == 0)
      ++numbers;
    else if (part.bits == 0 || part.step % block != 0)
      return 0;
  }
  return numbers == 1 ? block : 0;
}

// Whether tile registers, which require rows of one stride, can read a from lines in scratch.
bool can_copy_lines(const Problem& p, const Factor& a, const Dims& rows, const Dim& tap,
                    const GemmKernel& like) {
  const Dims others = without(p.contraction.reduce->dims, {tap});
  return like.tiles && a.load && !others.empty() && sym::as_const(extent_of(others)) &&
         is_multiple(p, others, like.step()) && kernels::match_lines(a.load->access, rows, tap, p.facts);
}

void add_lines(const Problem& p, const Factor& a, const Dims& rows, const Dim& tap, ContractionShape& shape) {
  const auto lines = *kernels::match_lines(a.load->access, rows, tap, p.facts);
  const auto row = rows.begin() + static_cast<std::ptrdiff_t>(lines.row);
  shape.images = points(p, Dims(rows.begin(), row));
  shape.copies = static_cast<double>(lines.copies.size());
  shape.line = points(p, Dims(row + 1, rows.end()));
  for (const auto& copy : lines.copies) shape.more_lines += static_cast<double>(copy.lines);
  shape.copied_k = points(p, without(p.contraction.reduce->dims, {tap}));
}

// How a is read.
struct Reading {
  GemmPlan::A a;
  const Dim* tap = nullptr;  // dim of k whose positions share lines
};

// A plan whose micro-kernel, tiles of a task, loop order and chunk of k are still open, and what its cycles
// depend on.
struct Outline {
  GemmPlan plan;
  ContractionShape shape;
  UnitSteps unit;
  bool reads_b_in_place;  // without a copy
};

// Plans for one choice of the factors and their element types.
class PlanMaker {
 public:
  // `like`: any of the micro-kernels for these element types.
  PlanMaker(const Problem& p, const Factor& a, const Factor& b, const GemmKernel& like,
            const CpuTarget& target)
      : p_(p), a_(a), b_(b), like_(like), target_(target) {}

  // `whole`: adds the whole space instead of one plan for each micro-kernel.
  void add_plans(bool whole, std::vector<RankedPlan>& out) {
    if (!assign_dims()) return;
    for (const Reading& reading : readings()) {
      const Outline outline = outline_for(reading);
      for (const GemmKernel& kernel : kernels::gemm_kernels()) {
        if (!alike(kernel, like_) || !kernel.runs_on(target_)) continue;
        const std::vector<RankedPlan> made = plans_of(kernel, outline, whole);
        if (whole)
          out.insert(out.end(), made.begin(), made.end());
        else
          out.push_back(*std::min_element(
              made.begin(), made.end(),
              [](const RankedPlan& x, const RankedPlan& y) { return x.cycles < y.cycles; }));
      }
    }
  }

 private:
  // Gives the nest's dims their roles. Returns false if the micro-kernels do not suit them.
  bool assign_dims() {
    const Dims& k = p_.contraction.reduce->dims;
    Dims candidates;
    for (const Dim& dim : p_.nest.dims) {
      const bool in_a = a_.vars.contains(dim.var), in_b = b_.vars.contains(dim.var);
      (in_a == in_b ? batch_ : in_a ? rows_ : candidates).push_back(dim);
    }
    // Weights are packed in panels. Only deep kernels, with vectors along k, have a panel of a single column.
    const bool few = points(p_, candidates) < like_.lanes();
    if (like_.deep ? !few || rows_.empty() || made_of_weights(p_, a_) : candidates.empty()) return false;
    weights_ = can_pack(p_, b_, byte_size(like_.b), batch_, candidates, k);
    if (like_.widens_b() && !weights_) return false;
    columns_ = choose_columns(p_, candidates, b_, weights_);
    for (const Dim& dim : without(candidates, columns_)) batch_.push_back(dim);
    for (const loop::Stmt* stmt : p_.epilogue)
      if (const loop::Access* access = loop::access_of(*stmt); access && !columns_.empty())
        scattered_ += scattered_cycles(access_along(p_, *access, columns_.back().var));
    contiguous_ = choose_run(p_, a_, k);
    return true;
  }

  std::vector<Reading> readings() const {
    const Dims& k = p_.contraction.reduce->dims;
    Dims in_place = contiguous_;
    if (!is_multiple(p_, in_place, like_.step())) in_place.clear();
    if (like_.tiles && !rows_step(p_, a_, rows_, in_place, without(k, in_place))) in_place.clear();
    std::vector<Reading> out;
    if (!in_place.empty()) out.push_back({GemmPlan::A::kDirect});
    out.push_back({GemmPlan::A::kPack});
    if (in_place.empty())
      for (const Dim& dim : k)
        if (can_copy_lines(p_, a_, rows_, dim, like_)) out.push_back({GemmPlan::A::kLines, &dim});
    return out;
  }

  Outline outline_for(const Reading& reading) const {
    GemmPlan plan{.a = reading.a};
    Dims run, segments;
    place_k(p_, a_, like_, reading.tap, plan, run, segments);
    Dims order = segments;
    order.insert(order.end(), run.begin(), run.end());
    const bool single = like_.group() == 1;
    const std::optional<Expr> b_row =
        single ? row_step(p_, b_, batch_, columns_, order) : std::optional<Expr>();
    const auto parts = !weights_ && single && made_of_weights(p_, b_)
                           ? kernels::quantized_parts(p_.program, p_.nest, b_, columns_, order)
                           : std::nullopt;
    if (parts && reading.a == GemmPlan::A::kDirect && like_.dtype == DType::kF32)
      plan.bytes = byte_blocks(p_, a_, run, segments, *parts, target_);
    plan.b = weights_ ? GemmPlan::B::kWeights : parts ? GemmPlan::B::kCompact : GemmPlan::B::kStage;
    plan.batch = vars_of(batch_), plan.rows = vars_of(rows_), plan.columns = vars_of(columns_);

    ContractionShape shape{points(p_, batch_),
                           points(p_, rows_),
                           points(p_, columns_),
                           points(p_, segments),
                           points(p_, run),
                           computing_cycles(a_),
                           !is_in_tiled_group(p_.program, p_.nest)};
    if (reading.tap) add_lines(p_, a_, rows_, *reading.tap, shape);
    shape.few_rows = few_rows(p_, rows_);
    return {plan, shape, unit_steps(order, b_row), b_row.has_value()};
  }

  // `order`: the dims of k, outermost first. `b_row`: see row_step().
  UnitSteps unit_steps(const Dims& order, const std::optional<Expr>& b_row) const {
    UnitSteps unit;
    if (lies_along(p_, a_, order.back().var))
      unit.a = points(p_, contiguous_.empty() ? Dims{order.back()} : contiguous_);
    else if (a_.load && like_.a == like_.dtype)
      unit.turned_a =
          kernels::stride_of_transposed_rows(p_.program, a_.load->access, rows_, order, p_.facts).has_value();
    if (b_row) unit.b_row = sym::as_const(*b_row).value_or(0) * byte_size(like_.b);
    unit.masked_b = b_.load && !sym::simplify(b_.load->access.mask, p_.facts).is_const(1);
    // Staged weights are reordered to be contiguous (schedule/layout/order_weights.h).
    unit.b = b_row || made_of_weights(p_, b_) ||
             (b_.load && step_along(p_, b_.load->access, order.back().var) == 1);
    return unit;
  }

  // The plan's least_tiles (kernels/gemm_plan.h); 0 if runs have enough tasks without it. A block whose tasks
  // share a copy of b is not split.
  int64_t least_tiles(const GemmPlan& plan, const ContractionShape& shape) const {
    constexpr double kLeastWork = 1 << 18;  // multiply-adds of a task
    if (!shape.shared || !plan.batch.empty() ||
        (plan.b != GemmPlan::B::kWeights && plan.b != GemmPlan::B::kDirect))
      return 0;
    const GemmKernel& kernel = *plan.kernel;
    const sym::Interval rows = p_.facts.bounds(extent_of(rows_));
    const double tile_rows = rows.has_lo() ? static_cast<double>(rows.lo) / kernel.rows : 0;
    if (tile_rows / static_cast<double>(plan.tiles) * shape.columns / kernel.columns() >= kernels::kManyTasks)
      return 0;
    const double tile_work = kernel.rows * kernel.columns() * std::max(1.0, shape.k());
    const auto least = static_cast<int64_t>(std::max(kernels::kFewTiles + 1.0, kLeastWork / tile_work));
    return least < plan.tiles ? least : 0;
  }

  std::vector<RankedPlan> plans_of(const GemmKernel& kernel, const Outline& outline, bool whole) const {
    GemmPlan plan = outline.plan;
    plan.kernel = &kernel;
    plan.panel = plan.b == GemmPlan::B::kStage ? 0 : kernel.columns();
    const int64_t chunk = plan.bytes > 0 ? 0 : choose_chunk(kernel, target_, outline.shape.k());
    std::vector<RankedPlan> made;
    auto add = [&](const GemmPlan& one) {
      made.push_back({one, plan_cycles(one, outline.shape, outline.unit, scattered_, target_)});
    };
    for (const int64_t tiles : tiles_of_task(plan, outline.shape, target_)) {
      plan.tiles = tiles;
      plan.least_tiles = least_tiles(plan, outline.shape);
      for (const bool rows_outer : {true, false}) {
        plan.rows_outer = rows_outer;
        plan.chunk = chunk;
        add(plan);
        if (outline.reads_b_in_place && !weights_) {
          // k is not split here: partial sums would go through memory although no panel is copied.
          GemmPlan in_place_too = plan;
          in_place_too.chunk = 0;
          in_place_too.b = GemmPlan::B::kDirect;
          in_place_too.least_tiles = least_tiles(in_place_too, outline.shape);
          add(in_place_too);
        }
        if (!whole) continue;
        plan.chunk = chunk / 2;
        add(plan);
        plan.chunk = 0;
        add(plan);
      }
    }
    return made;
  }

  const Problem& p_;
  const Factor &a_, &b_;
  const GemmKernel& like_;
  const CpuTarget& target_;
  Dims batch_, rows_, columns_;
  Dims contiguous_;       // of k, along which a can be read in place
  bool weights_ = false;  // b is packed at compile time
  double scattered_ = 0;  // cycles of the accesses after the sum
};

bool is_in_loop(const loop::Program& program, const loop::Nest& nest) {
  bool found = false;
  for (const loop::Step& step : program.steps)
    if (const auto* loop = std::get_if<loop::While>(&step.node))
      loop::for_each_step(loop->body, [&](const loop::Step& inner) {
        const auto* launch = std::get_if<loop::Launch>(&inner.node);
        found = found || (launch && &program[launch->nest] == &nest);
      });
  return found;
}

std::vector<RankedPlan> ranked_plans(const loop::Program& program, const loop::Nest& nest,
                                     const Contraction& contraction, const CpuTarget& target, bool whole) {
  Problem p{program, nest, contraction, kernels::facts_in(program, nest, contraction), {}};
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (i != contraction.at) p.epilogue.push_back(&nest.body[i]);
  }
  std::vector<RankedPlan> plans;
  std::vector<const GemmKernel*> likes;  // one for each choice of element types
  for (const GemmKernel& kernel : kernels::gemm_kernels()) {
    const bool known =
        std::any_of(likes.begin(), likes.end(), [&](const GemmKernel* like) { return alike(kernel, *like); });
    if (!known && kernel.dtype == contraction.dtype && kernel.runs_on(target)) likes.push_back(&kernel);
  }
  for (const GemmKernel* like : likes) {
    for (int side = 0; side < 2; ++side) {
      const auto a = kernels::as_elements(nest, contraction.factors[1 - side], like->a),
                 b = kernels::as_elements(nest, contraction.factors[side], like->b);
      if (!a || !b || (like->pairs && !is_small(program, *b, kernels::kMostOfPairs))) continue;
      PlanMaker(p, *a, *b, *like, target).add_plans(whole, plans);
    }
  }
  // Panels of bytes take half as much of the file and of the caches as panels of 16-bit values. The cost
  // model does not count this, so their cycles are divided by a constant. The constant is larger in loops,
  // because a step of a recurrent layer mostly has few rows, even if the batch is a symbol.
  constexpr double kNarrow = 1.1, kNarrowInLoop = 1.3;
  if (contraction.dtype == DType::kI32) {
    const double worth = is_in_loop(program, nest) ? kNarrowInLoop : kNarrow;
    for (RankedPlan& ranked : plans)
      if (ranked.plan.kernel->widens_b() || ranked.plan.kernel->pairs) ranked.cycles /= worth;
  }
  sort_stable(plans, [](const RankedPlan& x, const RankedPlan& y) { return x.cycles < y.cycles; });
  return plans;
}

}  // namespace

std::vector<RankedPlan> contraction_plans(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target) {
  const auto contraction = kernels::match_contraction(nest);
  return contraction ? ranked_plans(program, nest, *contraction, target, false) : std::vector<RankedPlan>();
}

std::vector<RankedPlan> contraction_space(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target) {
  const auto contraction = kernels::match_contraction(nest);
  return contraction ? ranked_plans(program, nest, *contraction, target, true) : std::vector<RankedPlan>();
}

std::optional<loop::Schedule> choose_contraction(const loop::Program& program, const loop::Nest& nest,
                                                 const CpuTarget& target) {
  const auto contraction = kernels::match_contraction(nest);
  if (!contraction) return std::nullopt;
  const std::vector<RankedPlan> plans = ranked_plans(program, nest, *contraction, target, false);
  const auto window = choose_window(program, nest, *contraction, target);
  if (window &&
      (plans.empty() || window_cycles(program, nest, *contraction, *window, target) < plans[0].cycles))
    return kernels::to_schedule(*window);
  if (plans.empty() || plans[0].cycles > general_cycles(program, nest, *contraction, target))
    return std::nullopt;
  return kernels::to_schedule(plans[0].plan);
}

}  // namespace stridec::schedule
