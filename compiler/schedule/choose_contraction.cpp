#include "compiler/schedule/choose_contraction.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/sort.h"
#include "compiler/kernels/compact.h"
#include "compiler/kernels/gemm_lines.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_window.h"
#include "compiler/schedule/effects.h"
#include "compiler/schedule/gemm_cost.h"
#include "compiler/schedule/memory_plan.h"

namespace stridec::schedule {
namespace {

using kernels::Contraction;
using kernels::Factor;
using kernels::GemmKernel;
using kernels::GemmPlan;
using loop::Dim;
using sym::Expr;
using Dims = std::vector<Dim>;

// What the model knows of a machine beyond CpuTarget, in cycles.
constexpr double kTileCall = 30;  // call, row addresses, loop ends
constexpr double kSegment = 12;   // per tile and segment: addresses, loop end
constexpr double kTask = 60;
constexpr double kBroadcast = 0.06;     // per row and k, beside multiply-adds
constexpr double kPrefetchedLine = 1;   // of a panel that is asked for ahead of its use
constexpr double kMissedLine = 5;       // of one that is not
constexpr double kStreamedLine = 0.05;  // of rows
constexpr double kCompactVector = 1.5;  // of numbers from compact weights, times a row

struct Problem {
  const loop::Program& program;
  const loop::Nest& nest;
  const Contraction& contraction;
  sym::Facts facts;
  std::vector<const loop::Stmt*> epilogue;
};

double points(const Problem& p, const Dims& dims) {
  double count = 1;
  for (const Dim& dim : dims) count *= std::max(1.0, typical(dim.extent, p.facts));
  return count;
}

// The factor's elements along the dim lie next to each other, or are one; of a computed factor those of all loads.
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

// Of the general emitter, for an element: what a factor is computed by, beyond loading it.
double computing(const Factor& factor) {
  double cost = 0;
  for (const loop::Stmt* stmt : factor.slice)
    if (const auto* let = std::get_if<loop::Let>(&stmt->node)) cost += loop::info(let->op).cost;
  return cost;
}

// ---- columns
// ---------------------------------------------------------------------------------------------------------

// How the stores and loads behind the sum, and b itself, step along a dim; 0 where there is no constant step.
int64_t step_along(const Problem& p, const loop::Access& access, Expr var) {
  const auto linear = sym::linear_in(kernels::offset_of(p.program, access, p.facts), var);
  return linear ? sym::as_const(linear->coefficient).value_or(0) : 0;
}

// The dims of the vectorised factor that run as one: an innermost dim, as contiguous as can be in what is
// stored and in b, and the dims outside of it that continue it everywhere.
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

// ---- k
// ---------------------------------------------------------------------------------------------------------------

// Dims of k that a holds contiguously, outer first, where a can be read in place.
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

// ---- b
// ---------------------------------------------------------------------------------------------------------------

// Values of weights alone, at indices that are known when the model is compiled, not many more than there are
// weights.
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
    if (buffer.storage != loop::Storage::kWeight) return false;
    given += static_cast<double>(sym::as_const(loop::element_count(buffer.shape)).value_or(0)) *
             byte_size(buffer.dtype);
  }
  return made > 0 && made <= kGrowth * given;
}

bool made_of_weights(const Problem& p, const Factor& b) {
  return std::all_of(b.slice.begin(), b.slice.end(), [&](const loop::Stmt* stmt) {
    const auto* load = std::get_if<loop::Load>(&stmt->node);
    return !load || p.program[load->access.buffer].storage == loop::Storage::kWeight;
  });
}

// b's rows are contiguous columns at one distance along k.
bool can_read(const Problem& p, const Factor& b, const Dims& batch, const Dims& columns, const Dims& k) {
  if (!b.load || !b.load->access.mask.is_const(1) || columns.empty()) return false;
  const Expr offset = kernels::offset_of(p.program, b.load->access, p.facts);
  const auto column = kernels::merged_step(offset, columns, p.facts);
  const auto step = kernels::merged_step(at_zero(offset, columns), k, p.facts);
  return column && column->is_const(1) && step && !depends_on_any(*step, batch);
}

// ---- cost
// ------------------------------------------------------------------------------------------------------------

struct Shape {
  double batch, rows, columns, segments, run;
  double computing;  // what a vector of a computed a takes beyond loads, cycles
  bool shared;       // by threads
  // Of a plan that copies lines: images, that no tile's rows are of two of, copies, their lines beyond those of an image's
  // rows, all together, rows of a line, and k of a copied row.
  double images = 1, copies = 0, more_lines = 0, line = 0, copied_k = 0;
  double k() const { return segments * run; }
};

// How much longer `tasks` equal tasks take than their share of the work, on machines of few threads and of more.
double imbalance(const Shape& s, double tasks) {
  if (!s.shared) return 1;
  constexpr std::pair<double, double> kThreads[] = {{2, 0.5}, {4, 0.25}, {8, 0.15}, {16, 0.1}};
  double sum = 0;
  for (const auto& [threads, weight] : kThreads) sum += weight * std::ceil(tasks / threads) * threads / tasks;
  return sum;
}

// Of k that a panel of half the cache can hold beside the rows and the next panel. Tile registers are fast enough to wait
// for what is in L2. Of others a panel that is a little larger is one piece still: its tiles' sums need not lie in memory.
int64_t choose_chunk(const GemmKernel& kernel, const CpuTarget& target, double k) {
  const int bytes = kernel.columns() * byte_size(kernel.b);
  if (kernel.tiles) return target.l1_bytes / 2 / bytes;
  const int64_t chunk = std::max<int64_t>(128, target.l2_bytes / 4 / bytes), longer = chunk * 5 / 4;
  return k <= static_cast<double>(longer) ? longer : chunk;
}

// How results of neighbouring columns are stored: as vectors; one by one; one by one to addresses that differ by multiples
// of a page, which share a few lines of the cache, so that each is driven out before the next row's store to it.
enum class Stores { kVectors, kApart, kSameLines };

Stores stores_along(const Problem& p, const loop::Access& access, Expr var) {
  constexpr int64_t kPage = 4096;
  const int64_t step = step_along(p, access, var);
  if (step == 1) return Stores::kVectors;
  const bool same = step != 0 && step * byte_size(p.program[access.buffer].dtype) % kPage == 0;
  return same ? Stores::kSameLines : Stores::kApart;
}

// Of a vector with so many columns.
double cycles_of(Stores stores, double columns) {
  constexpr double kDrivenOut = 4;
  return stores == Stores::kVectors ? 1 : columns * (stores == Stores::kApart ? 1 : kDrivenOut);
}

double cost(const GemmPlan& plan, const Shape& s, bool unit_a, bool unit_b, Stores stores,
            const CpuTarget& target) {
  const GemmKernel& kernel = *plan.kernel;
  if (plan.b == GemmPlan::B::kCompact && s.rows == 1 && plan.bytes == 0) {
    // Each number is met once, in registers.
    const double panels = std::ceil(s.columns / kernel.columns());
    return s.batch * panels * (s.k() * kernel.vectors * kCompactVector + kTask) *
           imbalance(s, s.batch * panels);
  }
  const double tiles = s.images * std::ceil(s.rows / s.images / kernel.rows),
               panels = std::ceil(s.columns / kernel.columns());
  const auto whole = [](double count) { return sym::Expr(static_cast<int64_t>(count)); };
  const auto blocks =
      static_cast<double>(sym::as_const(kernels::row_blocks(plan, whole(s.rows), whole(tiles),
                                                            whole(s.columns), whole(s.k()), target))
                              .value());
  const double groups = std::ceil(s.k() / kernel.step()) * (kernel.step() / kernel.group());
  const bool lines = plan.a == GemmPlan::A::kLines;
  const double segments = plan.a == GemmPlan::A::kPack ? 1 : s.segments;
  const double pieces = plan.chunk > 0 ? std::ceil(s.k() / static_cast<double>(plan.chunk)) : 1;
  const bool far = groups / pieces * kernel.vectors * kernel.vector_bytes > target.l1_bytes * 0.6;
  double tile = sum_cycles(kernel, s.rows / tiles, s.k(), far, target) + segments * kSegment;
  if (!kernel.tiles) tile += groups * kBroadcast * (s.rows / tiles);
  tile += pieces * (kTileCall + tile_call_cycles(kernel, s.rows / tiles));
  tile += s.rows / tiles * kernel.vectors * kEpilogueVector *
          cycles_of(stores, s.columns / (panels * kernel.vectors));
  // Panels come from beyond L2, each time that they were driven out.
  const double panel = groups * kernel.vectors, bytes = byte_size(kernel.a);
  const double copied =
      lines ? (s.rows * s.copies + (s.images + blocks - 1) * s.more_lines * s.line) * s.copied_k
            : s.rows * s.k();
  const double block_bytes = copied / blocks * bytes;
  const bool panels_stay = panels * panel * kernel.vector_bytes + block_bytes <= target.l2_bytes / 2;
  const double readings = panels_stay || (!plan.rows_outer && pieces == 1) ? 1 : blocks;
  const double line = plan.b == GemmPlan::B::kWeights && tiles / blocks >= 2 ? kPrefetchedLine : kMissedLine;
  const bool panel_stays = plan.chunk > 0 || panel * kernel.vector_bytes <= target.l2_bytes / 2;
  const double task = kTask + (kernel.tiles ? kShape : 0);
  double total = panels * (tiles * tile + blocks * task + readings * panel * line);
  if (!panel_stays) total += panels * (tiles - blocks) * panel * kPrefetchedLine;
  // So do rows, which are read once in a panel, in order: they cost little.
  const bool rows_stay = plan.rows_outer && block_bytes <= target.l2_bytes * 3 / 4;
  if (!rows_stay) total += panels * s.rows * s.k() * bytes / kernel.vector_bytes * kStreamedLine;
  total *= s.batch * imbalance(s, s.batch * panels * blocks);
  // Copies: contiguous ones move a vector in two cycles, others an element.
  // Those of groups interleave several rows.
  const double vector = (kernel.group() == 1 ? 2.0 : 4.0) / kernel.lanes(), element = 1.5;
  if (plan.a != GemmPlan::A::kDirect || plan.bytes > 0) {
    double copies = plan.rows_outer || blocks == 1 ? 1 : panels;
    // Threads that share a block of rows each compute all of it.
    if (s.computing > 0) copies *= imbalance(s, s.batch * blocks);
    total += s.batch * copied * ((unit_a ? vector : element) + s.computing / kernel.lanes()) * copies;
  }
  if (plan.b == GemmPlan::B::kStage || (plan.b == GemmPlan::B::kCompact && plan.bytes == 0)) {
    total += s.batch * panels * kernel.columns() * s.k() * (unit_b ? vector : element) *
             (plan.rows_outer && panels > 1 ? blocks : 1);
  }
  return total;
}

// Tiles of rows that a task may have: most of them first.
std::vector<int64_t> tiles_of_task(const GemmPlan& plan, const Shape& s, const CpuTarget& target) {
  // A block stays in the last level of cache, whatever the rows are.
  const double bytes = s.k() * plan.kernel->rows * byte_size(plan.kernel->a);
  const double most = std::max(2.0, target.l3_bytes / bytes);
  std::vector<int64_t> out;
  for (const int64_t tiles : {64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1})
    if (static_cast<double>(tiles) <= most) out.push_back(tiles);
  return out;
}

// ---- plans
// -----------------------------------------------------------------------------------------------------------

bool is_multiple(const Problem& p, const Dims& dims, int64_t divisor) {
  Expr extent = 1;
  for (const Dim& dim : dims) extent *= dim.extent;
  return divisor == 1 || p.facts.holds(sym::eq(sym::mod(extent, divisor), 0));
}

// The run and the segments of k, where a is read in place or copied; of lines the first segment is `tap`.
void place_k(const Problem& p, const Factor& a, const GemmKernel& like, const Dim* tap, GemmPlan& plan,
             Dims& run, Dims& segments) {
  const Dims& k = p.contraction.reduce->dims;
  run = plan.a == GemmPlan::A::kDirect ? choose_run(p, a, k) : k;
  if (plan.a != GemmPlan::A::kDirect) {
    // The order of k is free: the dim that lies innermost in a goes innermost.
    for (size_t d = 0; d < run.size(); ++d) {
      if (lies_along(p, a, run[d].var))
        std::rotate(run.begin() + static_cast<std::ptrdiff_t>(d),
                    run.begin() + static_cast<std::ptrdiff_t>(d) + 1, run.end());
    }
  }
  segments = without(k, run);
  if (tap) {
    // Short runs, so that a panel's pieces can be.
    segments = {*tap};
    run = without(run, segments);
    while (run.size() > 1 && is_multiple(p, Dims(run.begin() + 1, run.end()), like.step())) {
      segments.push_back(run[0]);
      run.erase(run.begin());
    }
  }
  plan.segments = vars_of(segments), plan.run = vars_of(run);
}

// Whether the rows lie at one distance from each other.
bool rows_step(const Problem& p, const Factor& a, const Dims& rows, const Dims& run, const Dims& segments) {
  if (!a.load || !sym::simplify(a.load->access.mask, p.facts).is_const(1)) return false;
  const auto form = kernels::linear_form(at_zero(kernels::offset_of(p.program, a.load->access, p.facts), run),
                                         vars_of(segments));
  if (!form || !kernels::merged_step(form->rest, rows, p.facts)) return false;
  return std::none_of(form->coefficients.begin(), form->coefficients.end(),
                      [&](Expr coefficient) { return depends_on_any(coefficient, rows); });
}

bool alike(const GemmKernel& x, const GemmKernel& y) {
  return x.a == y.a && x.b == y.b && x.dtype == y.dtype && x.step() == y.step();
}

// Of k, in which a's numbers are integers times one number while b is numbers of whole words in such blocks; 0: nothing is
// gained.
int64_t byte_blocks(const Problem& p, const Factor& a, const Dims& run, const Dims& segments,
                    const std::vector<kernels::CompactPart>& parts, const CpuTarget& target) {
  constexpr int64_t kLanes = 16;
  const int64_t block = p.contraction.reduce->byte_blocks;
  const auto depth = sym::as_const(extent_of(run));
  if (block == 0 || block % kLanes != 0 || !target.vnni || !segments.empty() || !depth ||
      *depth % block != 0 || !a.load || !sym::simplify(a.load->access.mask, p.facts).is_const(1))
    return 0;
  int numbers = 0;
  for (const kernels::CompactPart& part : parts) {
    if (part.bits == 0 && (part.step == 0 || part.step == block)) continue;
    if (part.step != 0 && part.step < block && part.bits >= 2 && kLanes % part.per_word() == 0 &&
        part.per_word() < block && part.low == 0)
      ++numbers;
    else if (part.bits == 0 || part.step % block != 0)
      return 0;
  }
  return numbers == 1 ? block : 0;
}

// Whether tile registers, whose rows lie at one distance, can read a from lines in scratch.
bool can_copy_lines(const Problem& p, const Factor& a, const Dims& rows, const Dim& tap,
                    const GemmKernel& like) {
  const Dims others = without(p.contraction.reduce->dims, {tap});
  return like.tiles && a.load && !others.empty() && sym::as_const(extent_of(others)) &&
         is_multiple(p, others, like.step()) && kernels::match_lines(a.load->access, rows, tap, p.facts);
}

void add_lines(const Problem& p, const Factor& a, const Dims& rows, const Dim& tap, Shape& shape) {
  const auto lines = *kernels::match_lines(a.load->access, rows, tap, p.facts);
  const auto row = rows.begin() + static_cast<std::ptrdiff_t>(lines.row);
  shape.images = points(p, Dims(rows.begin(), row));
  shape.copies = static_cast<double>(lines.copies.size());
  shape.line = points(p, Dims(row + 1, rows.end()));
  for (const auto& copy : lines.copies) shape.more_lines += static_cast<double>(copy.lines);
  shape.copied_k = points(p, without(p.contraction.reduce->dims, {tap}));
}

// `like`: the micro-kernels that take such elements. `whole`: the space rather than one plan for each of them.
void add_plans(const Problem& p, const Factor& a, const Factor& b, const GemmKernel& like,
               const CpuTarget& target, bool whole, std::vector<RankedPlan>& out) {
  const Dims& k = p.contraction.reduce->dims;
  Dims batch, rows, candidates;
  for (const Dim& dim : p.nest.dims) {
    const bool in_a = a.vars.contains(dim.var), in_b = b.vars.contains(dim.var);
    (in_a == in_b ? batch : in_a ? rows : candidates).push_back(dim);
  }
  if (candidates.empty()) return;
  const bool weights = can_pack(p, b, byte_size(like.b), batch, candidates, k);
  const Dims columns = choose_columns(p, candidates, b, weights);
  for (const Dim& dim : without(candidates, columns)) batch.push_back(dim);
  Stores stores = Stores::kVectors;
  for (const loop::Stmt* stmt : p.epilogue) {
    const auto* store = std::get_if<loop::Store>(&stmt->node);
    if (store && !columns.empty())
      stores = std::max(stores, stores_along(p, store->access, columns.back().var));
  }

  constexpr double kShortRun = 3;
  const int group = like.group();
  Dims in_place = choose_run(p, a, k);
  if (!is_multiple(p, in_place, like.step())) in_place.clear();
  if (like.tiles && !rows_step(p, a, rows, in_place, without(k, in_place))) in_place.clear();
  const bool prefer_pack =
      in_place.empty() || (points(p, in_place) < kShortRun * group && in_place.size() < k.size());
  struct Reading {
    GemmPlan::A a;
    const Dim* tap = nullptr;  // whose places share lines
  };
  std::vector<Reading> readings = {{prefer_pack ? GemmPlan::A::kPack : GemmPlan::A::kDirect}};
  if (whole && !in_place.empty())
    readings.push_back({prefer_pack ? GemmPlan::A::kDirect : GemmPlan::A::kPack});
  if (in_place.empty())
    for (const Dim& dim : k)
      if (can_copy_lines(p, a, rows, dim, like)) readings.push_back({GemmPlan::A::kLines, &dim});
  for (const auto& [reading, tap] : readings) {
    GemmPlan plan{.a = reading};
    Dims run, segments;
    place_k(p, a, like, tap, plan, run, segments);
    Dims order = segments;
    order.insert(order.end(), run.begin(), run.end());
    const bool readable = group == 1 && can_read(p, b, batch, columns, order);
    const auto parts = !weights && group == 1 && made_of_weights(p, b)
                           ? kernels::compact_parts(p.program, p.nest, b, columns, order)
                           : std::nullopt;
    const bool compact = parts.has_value();
    if (compact && reading == GemmPlan::A::kDirect && like.dtype == DType::kF32)
      plan.bytes = byte_blocks(p, a, run, segments, *parts, target);
    plan.b = weights ? GemmPlan::B::kWeights : compact ? GemmPlan::B::kCompact : GemmPlan::B::kStage;
    plan.batch = vars_of(batch), plan.rows = vars_of(rows), plan.columns = vars_of(columns);

    Shape shape{points(p, batch),
                points(p, rows),
                points(p, columns),
                points(p, segments),
                points(p, run),
                computing(a),
                !is_in_strips(p.program, p.nest)};
    if (tap) add_lines(p, a, rows, *tap, shape);
    const bool unit_a = lies_along(p, a, order.back().var) ||
                        (a.load && !rows.empty() && step_along(p, a.load->access, rows.back().var) == 1);
    // Weights that are staged are put in order (schedule/order_weights.h).
    const bool unit_b =
        readable || made_of_weights(p, b) || (b.load && step_along(p, b.load->access, order.back().var) == 1);
    for (const GemmKernel& kernel : kernels::gemm_kernels()) {
      if (!alike(kernel, like) || !kernel.runs_on(target)) continue;
      plan.kernel = &kernel;
      plan.panel = weights || compact ? kernel.columns() : 0;
      const int64_t chunk = plan.bytes > 0 ? 0 : choose_chunk(kernel, target, shape.k());
      std::vector<RankedPlan> made;
      auto add = [&](const GemmPlan& one) {
        made.push_back({one, cost(one, shape, unit_a, unit_b, stores, target)});
      };
      for (const int64_t tiles : tiles_of_task(plan, shape, target)) {
        plan.tiles = tiles;
        for (const bool rows_outer : {true, false}) {
          plan.rows_outer = rows_outer;
          plan.chunk = chunk;
          add(plan);
          if (!whole) continue;
          plan.chunk = chunk / 2;
          add(plan);
          plan.chunk = 0;
          add(plan);
          if (!readable || weights) continue;
          GemmPlan other = plan;
          other.b = GemmPlan::B::kDirect;
          add(other);
        }
      }
      if (!whole) {
        made = {*std::min_element(made.begin(), made.end(), [](const RankedPlan& x, const RankedPlan& y) {
          return x.cycles < y.cycles;
        })};
      }
      out.insert(out.end(), made.begin(), made.end());
    }
  }
}

std::vector<RankedPlan> ranked_plans(const loop::Program& program, const loop::Nest& nest,
                                     const CpuTarget& target, bool whole) {
  const auto contraction = kernels::match_contraction(nest);
  if (!contraction) return {};
  Problem p{program, nest, *contraction, kernels::facts_in(program, nest, *contraction), {}};
  for (size_t i = 0; i < nest.body.size(); ++i) {
    if (i != contraction->at) p.epilogue.push_back(&nest.body[i]);
  }
  std::vector<RankedPlan> plans;
  std::vector<const GemmKernel*> likes;  // one of each choice of elements
  for (const GemmKernel& kernel : kernels::gemm_kernels()) {
    const bool known =
        std::any_of(likes.begin(), likes.end(), [&](const GemmKernel* like) { return alike(kernel, *like); });
    if (!known && kernel.dtype == contraction->dtype && kernel.runs_on(target)) likes.push_back(&kernel);
  }
  for (const GemmKernel* like : likes) {
    for (int side = 0; side < 2; ++side) {
      const auto a = kernels::as_elements(nest, contraction->factors[1 - side], like->a),
                 b = kernels::as_elements(nest, contraction->factors[side], like->b);
      if (a && b) add_plans(p, *a, *b, *like, target, whole, plans);
    }
  }
  sort_stable(plans, [](const RankedPlan& x, const RankedPlan& y) { return x.cycles < y.cycles; });
  return plans;
}

}  // namespace

double typical(Expr e, const sym::Facts& facts) {
  const auto value = sym::evaluate(e, [&](Expr var) -> std::optional<int64_t> {
    const sym::Interval range = facts.bounds(var);
    const int64_t lo = range.has_lo() ? range.lo : 1;
    const int64_t hi = range.has_hi() ? range.hi : 2 * kTypicalSize;
    return std::clamp<int64_t>(lo + (hi - lo) / 2, lo, std::max(lo, kTypicalSize));
  });
  return value ? static_cast<double>(*value) : static_cast<double>(kTypicalSize);
}

double typical_bytes(const loop::Program& program, loop::BufferId id) {
  return typical(loop::element_count(program[id].shape), program.facts) * byte_size(program[id].dtype);
}

std::vector<RankedPlan> contraction_plans(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target) {
  return ranked_plans(program, nest, target, false);
}

std::vector<RankedPlan> contraction_space(const loop::Program& program, const loop::Nest& nest,
                                          const CpuTarget& target) {
  return ranked_plans(program, nest, target, true);
}

namespace {

// Cycles of the general emitter for a vector of a factor along a dim.
double vector_cycles(const Problem& p, const Factor& factor, Expr var, const CpuTarget& target) {
  if (!factor.vars.contains(var) || !factor.load) return 1;
  const auto linear = sym::linear_in(kernels::offset_of(p.program, factor.load->access, p.facts), var);
  const bool unit = linear && (linear->coefficient.is_const(0) || linear->coefficient.is_const(1));
  return unit ? 1 : target.lanes(4);
}

}  // namespace

// The general emitter vectorises one dim and keeps one accumulator per point, a load of each factor for a vector of
// multiply-adds; along a reduced dim every run of it is a loop of its own. It waits for factors as they come from memory.
double general_cycles(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  constexpr double kRun = 6;
  const auto contraction = *kernels::match_contraction(nest);
  const Problem p{program, nest, contraction, kernels::facts_in(program, nest, contraction), {}};
  const double steps = points(p, nest.dims) * points(p, contraction.reduce->dims);
  double least = INFINITY;
  const auto add = [&](const Dim& dim, double run) {
    const double n = points(p, {dim});
    double vector = 0;
    for (const Factor& factor : contraction.factors) vector += vector_cycles(p, factor, dim.var, target);
    least = std::min(least, steps / n * (std::ceil(n / target.lanes(4)) * vector + run));
  };
  for (const Dim& dim : nest.dims) add(dim, 0);
  for (const Dim& dim : contraction.reduce->dims) add(dim, kRun);
  double memory = 0;
  Dims dims = nest.dims;
  dims.insert(dims.end(), contraction.reduce->dims.begin(), contraction.reduce->dims.end());
  for (const Factor& factor : contraction.factors) {
    double elements = 1;
    for (const Dim& dim : dims)
      if (factor.vars.contains(dim.var)) elements *= points(p, {dim});
    memory = std::max(memory, elements);
    if (!factor.load) least += steps * computing(factor) / target.lanes(4);
  }
  return least + memory * kMissedLine / target.lanes(4);
}

std::optional<loop::Schedule> choose_contraction(const loop::Program& program, const loop::Nest& nest,
                                                 const CpuTarget& target) {
  const std::vector<RankedPlan> plans = contraction_plans(program, nest, target);
  const auto window = choose_window(program, nest, target);
  if (window && (plans.empty() || window_cycles(program, nest, *window, target) < plans[0].cycles))
    return kernels::to_schedule(*window);
  if (plans.empty() || plans[0].cycles > general_cycles(program, nest, target)) return std::nullopt;
  return kernels::to_schedule(plans[0].plan);
}

}  // namespace stridec::schedule
