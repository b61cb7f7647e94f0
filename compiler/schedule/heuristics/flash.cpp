#include "compiler/schedule/heuristics/flash.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/cuda_contraction_cost.h"

namespace stridec::schedule {
namespace {

using kernels::FlashPlan;
using sym::Expr;

// The size or, if the run decides it, its upper bound.
double most_of(Expr size, const sym::Facts& facts) {
  constexpr double kMany = 0x1p20;
  const sym::Interval range = facts.bounds(size);
  return range.has_hi() ? std::min(kMany, static_cast<double>(range.hi)) : kMany;
}

// The number of blocks that share the keys (split-K) if rows are few, so that all multiprocessors are busy; 0
// if rows are many or keys few. For sizes that the run decides it assumes the fewest batch points and the
// most keys; the kernels handle runs for which that is too many.
int split_of(const kernels::Flash& flash, const sym::Facts& facts, const GpuTarget& target) {
  const double rows = typical(flash.chain.row.extent, facts), keys = most_of(flash.keys.extent, facts);
  if (!target.clusters || rows > kernels::kSplitRows || keys < 2 * kernels::kSplitKeys) return 0;
  double blocks = 1;
  for (const loop::Dim& dim : flash.chain.batch)
    blocks *= static_cast<double>(std::max<int64_t>(1, facts.bounds(dim.extent).lo));
  int split = 1;
  while (split < kernels::kMostSplit && 2 * split * blocks <= target.multiprocessors &&
         2 * split * kernels::kSplitKeys <= keys)
    split *= 2;
  return split;
}

Expr tiles_of(const kernels::Flash& flash, int64_t rows) {
  Expr tiles = sym::ceildiv(flash.chain.row.extent, rows);
  for (const loop::Dim& dim : flash.chain.batch) tiles *= dim.extent;
  return tiles;
}

// With 32-bit elements, two tiles of 128 rows per multiprocessor are faster than four of 64 if there are
// several waves of them.
int most_rows(const kernels::Flash& flash, const sym::Facts& facts, const GpuTarget& target) {
  constexpr int kWaves = 4;
  if (flash.bytes() == 2) return 128;
  const FlashPlan large = kernels::mma_tiles(flash)[0];
  const bool many = facts.bounds(tiles_of(flash, large.rows)).lo >= int64_t{kWaves} * target.multiprocessors;
  const bool two = 2 * kernels::shared_bytes(large, flash) <= target.shared_bytes_sm;
  return many && two && !flash.triangular() ? large.rows : 64;
}

// Whether tiles of `large` rows, which share more, compute few more rows than tiles of `small` rows.
bool fills(Expr rows, int64_t large, int64_t small) {
  constexpr double kWorth = 1.1;
  const auto count = sym::as_const(rows);
  if (!count) return true;
  const auto computed = [&](int64_t tile) { return static_cast<double>((*count + tile - 1) / tile * tile); };
  return computed(large) <= kWorth * computed(small);
}

// Tiles of warp groups, the largest first.
constexpr FlashPlan kWarpGroupTiles[] = {{.wgmma = true, .rows = 192, .keys = 128},
                                         {.wgmma = true, .rows = 128, .keys = 128},
                                         {.wgmma = true, .rows = 128, .keys = 64}};

}  // namespace

std::vector<FlashPlan> flash_plans(const loop::Program& program, const loop::Nest& nest,
                                   const GpuTarget& target) {
  const auto flash = kernels::match_flash(program, nest);
  if (!flash) return {};
  std::vector<FlashPlan> plans;
  for (const FlashPlan& plan : kWarpGroupTiles)
    if (target.wgmma && kernels::fits_warp_groups(plan, *flash)) plans.push_back(plan);
  for (const FlashPlan& plan : kernels::mma_tiles(*flash))
    if (kernels::shared_bytes(plan, *flash) <= target.shared_bytes) plans.push_back(plan);
  const double keys = most_of(flash->keys.extent, loop::facts_of(program, nest));
  for (int split = 1; target.clusters && split <= kernels::kMostSplit; split *= 2)
    if (const auto plan = kernels::split_plan(*flash, target.shared_bytes, split, keys))
      plans.push_back(*plan);
  if (const auto plan = kernels::spread_plan(*flash, target.shared_bytes)) plans.push_back(*plan);
  return plans;
}

std::optional<FlashPlan> choose_flash(const loop::Program& program, const loop::Nest& nest,
                                      const GpuTarget& target, std::string* reason) {
  const auto flash = kernels::match_flash(program, nest, reason);
  if (!flash) return std::nullopt;
  // Few rows do not fill the tiles of warp groups.
  const bool few = typical(flash->chain.row.extent, loop::facts_of(program, nest)) <= 64;
  if (target.wgmma && !few)
    for (const FlashPlan& plan : kWarpGroupTiles)
      if (kernels::fits_warp_groups(plan, *flash) &&
          (plan.rows == 128 || fills(flash->chain.row.extent, plan.rows, 128)))
        return plan;
  const sym::Facts facts = loop::facts_of(program, nest);
  if (typical(flash->chain.row.extent, facts) <= kernels::kSplitRows)
    if (const auto plan = kernels::spread_plan(*flash, target.shared_bytes);
        plan && !sym::simplify(kernels::worth_spreading(*plan, *flash, target), facts).is_const(0))
      return plan;
  if (const int split = split_of(*flash, facts, target))
    if (const auto plan =
            kernels::split_plan(*flash, target.shared_bytes, split, most_of(flash->keys.extent, facts)))
      return plan;
  if (const auto plan =
          kernels::mma_plan(*flash, target.shared_bytes, few ? 64 : most_rows(*flash, facts, target)))
    return plan;
  if (reason) *reason = "its tiles do not fit shared memory";
  return std::nullopt;
}

// Always pays with 16-bit elements. With 32-bit elements tensor cores have half the rate, f32 takes three
// multiplications, and warp groups multiply faster than this kernel's warps.
bool pays(const kernels::Flash& flash, const sym::Facts& facts, const GpuTarget& target) {
  if (flash.bytes() == 2) return true;
  constexpr double kReached = 0.7;  // share of the peak multiply rate that either kind of tile reaches
  // rate relative to that of larger instructions
  const double warps = target.wgmma ? 0.6 : target.tcgen05 ? 0.3 : 1;
  constexpr double kScoreBytes = 16;  // scores and probabilities are stored and loaded
  constexpr double kCached = 3;       // how much faster the L2 is than memory
  constexpr double kLaunches = 14e3;  // cycles of a multiprocessor: two launches and the end of two waves
  // Cycles of a warp that no other warp hides (H200): for 32 keys and heads of 64, with one tf32
  // multiplication or with three.
  constexpr double kStep = 2250, kStepKeys = 32, kStepWidth = 128;
  const bool exact = flash.dtype == DType::kF32;
  double points = 1;
  for (const loop::Dim& dim : flash.chain.batch) points *= typical(dim.extent, facts);
  const double rows = typical(flash.chain.row.extent, facts), keys = typical(flash.keys.extent, facts);
  const double tile = rows <= kernels::kSplitRows ? kernels::kSplitRows : 64;
  const double flops = 2 * points * keys * static_cast<double>(flash.depth + flash.width);
  const double multiprocessors = target.multiprocessors, words = target.tensor_flops / 2.0;
  const double one = flops * std::ceil(rows / tile) * tile * (flash.triangular() ? 0.5 : 1) *
                     (exact ? 3 : 1) / (words * warps);
  const double products = flops * rows / (exact ? target.scalar_flops : words);
  const double bytes = points * rows * keys * kScoreBytes;
  const double passes = memory_cycles(bytes, target) / (bytes <= 2.0 * target.l2_bytes ? kCached : 1);
  // Keys and values are loaded either way.
  const double factors =
      memory_cycles(points * keys * static_cast<double>((flash.depth + flash.width) * flash.bytes()), target);
  const auto busy = [&](double cycles) { return std::max(cycles / (kReached * multiprocessors), factors); };
  // A warp iterates over all keys of its rows, unless blocks share the keys because rows are few.
  const double alone = rows <= kernels::kSplitRows
                           ? 0
                           : kStep * (exact ? 2 : 1) * std::ceil(keys / kStepKeys) *
                                 static_cast<double>(flash.depth + flash.width) / kStepWidth;
  return std::max(busy(one), alone) <= busy(products) + passes + kLaunches;
}

std::optional<loop::Nest> with_shared_rows(const loop::Program& program, const loop::Nest& nest) {
  const auto flash = kernels::match_flash(program, nest);
  if (!flash) return std::nullopt;
  const Expr row = flash->chain.row.var;
  const loop::Load& keys = *flash->k.load;
  for (size_t d = 0; d < nest.dims.size(); ++d) {
    const Expr head = nest.dims[d].var;
    for (Expr index : keys.access.index) {
      if (index.op() != sym::Op::kFloorDiv || index.arg(0) != head) continue;
      const auto group = sym::as_const(index.arg(1)), heads = sym::as_const(nest.dims[d].extent);
      if (!group || !heads || *heads % *group) continue;
      loop::Nest out = nest;
      loop::Cloner names(out);
      const Expr outer = names.fresh_index(head), inner = names.fresh_index(row);
      loop::substitute(
          out.body, {{head, outer * *group + sym::mod(inner, *group)}, {row, sym::floordiv(inner, *group)}});
      for (loop::Dim& dim : out.dims) {
        if (dim.var == head) dim = {outer, *heads / *group};
        if (dim.var == row) dim = {inner, dim.extent * *group};
      }
      loop::simplify(program, out);
      if (kernels::match_flash(program, out)) return out;
    }
  }
  return std::nullopt;
}

}  // namespace stridec::schedule
