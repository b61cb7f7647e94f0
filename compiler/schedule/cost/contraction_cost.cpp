#include "compiler/schedule/cost/contraction_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "compiler/loop/analysis.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/gemm_cost.h"
#include "compiler/schedule/cost/loop_cost.h"

namespace stridec::schedule {
namespace {

using kernels::Factor;
using kernels::GemmKernel;
using kernels::GemmPlan;
using loop::Dim;
using sym::Expr;
using Dims = std::vector<Dim>;

// What the model knows of a machine beyond CpuTarget, in cycles.
constexpr double kTileCall = 30;  // call, row addresses, loop ends
constexpr double kSegment = 6;    // per tile and segment: loop end
// Per row of a tile and segment: its address, where the addresses of all segments take this share of L1;
// multiply-adds hide it in runs of so many k.
constexpr double kRowAddress = 5.5, kAddressShare = 0.25, kLongRun = 24;
constexpr double kCopiedRun = 6;  // per run of contiguous elements copied: address, loop end
// For transposed copies: per vector of a square block, each vector from another line; and per element outside
// of whole blocks.
constexpr double kTurnedVector = 16, kTurnedElement = 4;
constexpr double kMaskedElement = 8;
// Relative to f32 multiply-adds: four at a time, but values are unpacked and sums scaled.
constexpr double kByteProducts = 0.5;
constexpr double kTask = 60;
constexpr double kBroadcast = 0.06;     // per row and k, in addition to multiply-adds
constexpr double kPrefetchedLine = 1;   // of a panel that is prefetched
constexpr double kMissedLine = 5;       // of one that is not
constexpr double kStreamedLine = 0.05;  // of the rows of a
// per vector of values unpacked from block-quantised weights and multiplied by one row
constexpr double kCompactVector = 1.5;

// How much longer `tasks` equal tasks take than an even share of the work, averaged over thread counts.
double imbalance(const ContractionShape& s, double tasks) {
  if (!s.shared) return 1;
  constexpr std::pair<double, double> kThreads[] = {{2, 0.5}, {4, 0.25}, {8, 0.15}, {16, 0.1}};
  double sum = 0;
  for (const auto& [threads, weight] : kThreads) sum += weight * std::ceil(tasks / threads) * threads / tasks;
  return sum;
}

// Cycles the general emitter needs for a vector of a factor along a dim.
double vector_cycles(const loop::Program& program, const Factor& factor, Expr var, const sym::Facts& facts,
                     const CpuTarget& target) {
  if (!factor.vars.contains(var) || !factor.load) return 1;
  const loop::Access& access = factor.load->access;
  const auto linear = sym::linear_in(kernels::offset_of(program, access, facts), var);
  const auto step = linear ? sym::as_const(linear->coefficient) : std::nullopt;
  if (!step) return target.lanes(4);
  if (*step == 0 || *step == 1) return 1;
  // Panels of weights are contiguous, so loops have no advantage there.
  const loop::Buffer& buffer = program[access.buffer];
  if (buffer.storage == loop::Storage::kParameter) return target.lanes(4);
  return strided_load_cycles(*step, byte_size(buffer.dtype), sym::depends_on(access.mask, var), target)
      .value_or(target.lanes(4));
}

// Cycles for the lines of a panel's columns that come, for each k, from another place in memory: they are far
// apart, so that each is on a page of its own, or share so few sets of L2 that they do not stay there.
double far_row_cycles(const GemmKernel& kernel, double k, int64_t row, const CpuTarget& target) {
  constexpr double kFarLine = 3, kWays = 8, kPages = 64;
  constexpr int64_t kLine = 64, kPage = 4096;
  if (row <= 0) return 0;
  const double lines = kernel.columns() * byte_size(kernel.b) / static_cast<double>(kLine) + 0.5;
  const int64_t span = target.l2_bytes / static_cast<int64_t>(kWays);
  const double stay = static_cast<double>(span / std::max(kLine, std::gcd(row, span))) * kWays;
  return k * lines > stay / 2 || (row >= kPage && k > kPages) ? lines * kFarLine : 0;
}

double cycles_of_shape(const GemmPlan& plan, const ContractionShape& s, UnitSteps unit, double scattered,
                       const CpuTarget& target) {
  const GemmKernel& kernel = *plan.kernel;
  if (plan.b == GemmPlan::B::kCompact && s.rows == 1 && plan.bytes == 0) {
    // Each value is unpacked once, in registers.
    const double panels = std::ceil(s.columns / kernel.columns());
    return s.batch * panels * (s.k() * kernel.vectors * kCompactVector + kTask) *
           imbalance(s, s.batch * panels);
  }
  const double panels = std::ceil(s.columns / kernel.columns());
  const auto whole = [](double count) { return sym::Expr(static_cast<int64_t>(count)); };
  const auto number = [](sym::Expr e) { return static_cast<double>(sym::as_const(e).value()); };
  const kernels::RowSplit split = kernels::split_rows(plan, whole(s.images), whole(s.rows / s.images),
                                                      whole(s.columns), whole(s.k()), target);
  const double bands = number(split.bands), tiles = number(split.tiles),
               blocks = bands * number(split.blocks);
  const double groups = std::ceil(s.k() / kernel.step()) * (kernel.step() / kernel.group());
  const bool lines = plan.a == GemmPlan::A::kLines;
  const double segments = plan.a == GemmPlan::A::kPack ? 1 : s.segments;
  const double pieces = plan.chunk > 0 ? std::ceil(s.k() / static_cast<double>(plan.chunk)) : 1;
  const bool far = groups / pieces * kernel.vectors * kernel.vector_bytes > target.l1_bytes * 0.6;
  const bool many = s.rows / tiles * segments * sizeof(void*) > kAddressShare * target.l1_bytes;
  const double address = many ? kRowAddress * std::max(0.0, 1 - s.run / kLongRun) : 0;
  double tile = sum_cycles(kernel, s.rows / tiles, s.k(), far, target) +
                segments * (kSegment + s.rows / tiles * address);
  if (plan.bytes > 0) tile *= kByteProducts;
  if (!kernel.tiles && !kernel.deep) tile += groups * kBroadcast * (s.rows / tiles);
  const double far_rows = plan.b == GemmPlan::B::kDirect || plan.b == GemmPlan::B::kStage
                              ? s.k() * far_row_cycles(kernel, s.k() / pieces, unit.b_row, target)
                              : 0;
  if (plan.b == GemmPlan::B::kDirect) tile += far_rows;
  // Few tiles multiply a panel piece by piece, with their sums in memory in between.
  const bool short_pieces = s.few_rows > 0 && blocks == bands && tiles > bands &&
                            tiles <= kernels::kFewTiles * bands && s.rows <= kernels::kFewRows * tiles;
  const int64_t piece = short_pieces ? kernels::short_chunk(plan, static_cast<int64_t>(s.k()),
                                                            static_cast<int64_t>(s.batch * s.columns), target)
                                     : 0;
  const double calls = piece > 0 ? std::ceil(s.k() / static_cast<double>(piece)) : pieces;
  tile += calls * (kTileCall + tile_call_cycles(kernel, s.rows / tiles)) +
          (calls - 1) * 2 * kernel.vectors * s.rows / tiles;
  tile += s.rows / tiles * kernel.line_vectors() * kEpilogueVector *
          std::max(1.0, s.columns / (panels * kernel.line_vectors()) * scattered);
  // Panels come from beyond L2 each time they were evicted.
  const double panel = groups * kernel.vectors * byte_size(kernel.b) / byte_size(kernel.a),
               bytes = byte_size(kernel.a);
  const double copied =
      lines ? (s.rows * s.copies + (s.images + blocks - 1) * s.more_lines * s.line) * s.copied_k
            : s.rows * s.k();
  const double block_bytes = copied / blocks * bytes;
  const bool panels_stay = panels * panel * kernel.vector_bytes + block_bytes <= target.l2_bytes / 2;
  const bool panel_stays = plan.chunk > 0 || panel * kernel.vector_bytes <= target.l2_bytes / 2;
  // all row blocks use a panel in sequence
  const bool met_once = !plan.rows_outer && pieces == 1 && panel_stays;
  const double readings = panels_stay ? 1 : met_once ? bands : blocks;
  const double line = plan.b == GemmPlan::B::kWeights && tiles / blocks >= 2 ? kPrefetchedLine : kMissedLine;
  const double task = kTask + (kernel.tiles ? kShape : 0);
  double total = panels * (tiles * tile + blocks * task + readings * panel * line);
  if (!panel_stays) total += panels * (tiles - blocks) * panel * kPrefetchedLine;
  // Rows are evicted too, but they are read once per panel and in order, which is cheap.
  const bool rows_stay = plan.rows_outer && block_bytes <= target.l2_bytes * 3 / 4;
  if (!rows_stay) total += panels * s.rows * s.k() * bytes / kernel.vector_bytes * kStreamedLine;
  total *= s.batch * imbalance(s, s.batch * panels * blocks);
  // Copies: contiguous ones move a vector in two cycles, others an element. Kernels with groups interleave
  // several rows.
  const double vector = kernel.group() == 1 ? 2 : 4, element = 1.5;
  if (plan.a != GemmPlan::A::kDirect || plan.bytes > 0) {
    double copies = plan.rows_outer || blocks == 1 ? 1 : panels;
    const double lanes = kernel.lanes();
    const auto in_squares = [&](double count) {
      return count < lanes ? 0 : std::floor(count / lanes) * lanes / count;
    };
    const double turned = unit.turned_a ? in_squares(s.rows / blocks) * in_squares(s.k()) : 0;
    const double rest = unit.turned_a ? kTurnedElement : element;
    const double copy = unit.a == 0 ? turned * kTurnedVector / lanes + (1 - turned) * rest
                                    : (std::ceil(unit.a / lanes) * vector + kCopiedRun) / unit.a;
    // Threads that share a block of rows each compute all of it.
    if (s.computing > 0) copies *= imbalance(s, s.batch * blocks);
    total += s.batch * copied * (copy + s.computing / kernel.lanes()) * copies;
  }
  if (plan.b == GemmPlan::B::kStage || (plan.b == GemmPlan::B::kCompact && plan.bytes == 0)) {
    total += s.batch * panels *
             (kernel.columns() * s.k() *
                  (unit.masked_b ? kMaskedElement
                   : unit.b      ? vector / kernel.lanes()
                                 : element) +
              far_rows) *
             (plan.rows_outer && panels > 1 ? blocks : 1);
  }
  return total;
}

}  // namespace

double scattered_cycles(ColumnAccess access) {
  constexpr double kElement = 1, kEvicted = 4;
  return access == ColumnAccess::kVectors ? 0 : access == ColumnAccess::kApart ? kElement : kEvicted;
}

double plan_cycles(const GemmPlan& plan, const ContractionShape& s, UnitSteps unit, double scattered,
                   const CpuTarget& target) {
  constexpr double kFewShare = 0.25;
  const double typical = cycles_of_shape(plan, s, unit, scattered, target);
  if (s.few_rows == 0) return typical;
  ContractionShape few = s;
  few.rows = s.few_rows;
  return (1 - kFewShare) * typical +
         kFewShare * s.rows / s.few_rows * cycles_of_shape(plan, few, unit, scattered, target);
}

std::vector<int64_t> tiles_of_task(const GemmPlan& plan, const ContractionShape& s, const CpuTarget& target) {
  // A block stays in the last-level cache, however many rows there are.
  const double bytes = s.k() * plan.kernel->rows * byte_size(plan.kernel->a);
  const double most = std::max(2.0, target.l3_bytes / bytes);
  std::vector<int64_t> out;
  for (const int64_t tiles : {64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1})
    if (static_cast<double>(tiles) <= most) out.push_back(tiles);
  return out;
}

int64_t choose_chunk(const GemmKernel& kernel, const CpuTarget& target, double k) {
  const int bytes = kernel.columns() * byte_size(kernel.b);
  if (kernel.tiles) return target.l1_bytes / 2 / bytes;
  const int64_t chunk = std::max<int64_t>(128, target.l2_bytes / 4 / bytes), longer = chunk * 5 / 4;
  return k <= static_cast<double>(longer) ? longer : chunk;
}

double computing_cycles(const Factor& factor) {
  double cost = 0;
  for (const loop::Stmt* stmt : factor.slice)
    if (const auto* let = std::get_if<loop::Let>(&stmt->node)) cost += loop::info(let->op).cost;
  return cost;
}

// Whether windows slide over the factor: a GEMM copies each element once for every window that it is in.
bool has_windows(const Factor& factor) {
  return factor.load &&
         std::ranges::any_of(factor.load->access.index, [](Expr e) { return sym::free_vars(e).size() > 1; });
}

// Cycles of a vector of multiply-adds where points along another dim, on which the vectors do not depend, are
// computed together: these share a load of the vector, of `load` cycles, and two vectors share a broadcast of
// the other factor. That is for a few such points in all, such as output channels; nothing otherwise.
std::optional<double> shared_cycles(const Dims& dims, const Factor& vectors, double load,
                                    const sym::Facts& facts) {
  constexpr double kTogether = 4, kFew = 16, kFewShuffled = 8, kFused = 0.5;
  double most = 1, all = 1;
  for (const Dim& dim : dims) {
    if (vectors.vars.contains(dim.var)) continue;
    all *= typical_points({dim}, facts);
    most = std::max(most, std::min(kTogether, typical_points({dim}, facts)));
  }
  if (most == 1 || all > (load == 1 ? kFew : kFewShuffled) || (load == 1 && !has_windows(vectors)))
    return std::nullopt;
  return load / most + kFused;
}

// The general emitter vectorises one dim and keeps one accumulator per point, so a vector of multiply-adds
// loads each factor, unless neighbours along another dim share it. Along a reduced dim, every run is a loop
// of its own. It waits for factors that come from memory.
double general_cycles(const loop::Program& program, const loop::Nest& nest,
                      const kernels::Contraction& contraction, const CpuTarget& target) {
  constexpr double kRun = 6;
  const sym::Facts facts = kernels::facts_in(program, nest, contraction);
  const double steps = typical_points(nest.dims, facts) * typical_points(contraction.reduce->dims, facts);
  double least = INFINITY;
  const auto add = [&](const Dim& dim, double run) {
    const double n = typical_points({dim}, facts);
    double vector = 0;
    for (const Factor& factor : contraction.factors)
      vector += vector_cycles(program, factor, dim.var, facts, target);
    for (int side = 0; side < 2 && run == 0 && vector < target.lanes(4); ++side)
      if (contraction.factors[side].vars.contains(dim.var) &&
          !contraction.factors[1 - side].vars.contains(dim.var))
        vector = std::min(
            vector, shared_cycles(nest.dims, contraction.factors[side], vector - 1, facts).value_or(vector));
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
      if (factor.vars.contains(dim.var)) elements *= typical_points({dim}, facts);
    // Windows overlap.
    if (factor.load) {
      const loop::Buffer& buffer = program[factor.load->access.buffer];
      elements = std::min(elements, typical(loop::element_count(buffer.shape), facts));
    }
    memory = std::max(memory, elements);
    if (!factor.load) least += steps * computing_cycles(factor) / target.lanes(4);
  }
  return least + memory * kMissedLine / target.lanes(4);
}

}  // namespace stridec::schedule
