#include "compiler/schedule/fusion/depth_first_cost.h"

#include <algorithm>
#include <cmath>

#include "compiler/loop/analysis.h"
#include "compiler/schedule/analysis/typical.h"
#include "compiler/schedule/cost/tile_cost.h"
#include "compiler/schedule/fusion/tile_and_fuse.h"

namespace stridec::schedule {
namespace {

using loop::BufferId;
using sym::Expr;

constexpr int64_t kMostUnits = 64;     // of RowChain::points, in a tile
constexpr double kThreads = 4;         // each starts at rows that another one has computed as well
constexpr double kFlopsPerCycle = 32;  // of GEMMs
// cycles per nest and tile: the call, and register tiles that its rows do not fill
constexpr double kNestOfStrip = 1000;
// Rows and columns that a GEMM needs to fill its register tiles.
constexpr double kLeastSide = 8;
constexpr double kWeightBytes = 16;  // per cycle, of weights that another nest evicted
constexpr double kThreadCache = 1 << 20;
// of an input that stays in memory, per tile; rows may be longer than at typical sizes
constexpr double kKeptBytes = 128 << 10;
constexpr double kAllCaches = 12 << 20;
// Bytes per cycle beyond a thread's cache, and beyond all caches.
constexpr double kCacheBytes = 8, kMemoryBytes = 4;

// The number of images that every run has.
double images_of(const loop::Program& program, const RowChain& chain) {
  const loop::Nest& last = *nest_at(program, program.steps, chain.at.back());
  double images = 1;
  for (Expr var : chain.images.back())
    images *= static_cast<double>(std::max<int64_t>(1, program.facts.bounds(extent_of(last, var)).lo));
  return images;
}

// If there are no image dims and the rows have no halo, the outermost rows may be images: then only those
// that every run has count.
double points_of(const loop::Program& program, const RowChain& chain) {
  const bool apart = chain.images.back().empty() &&
                     std::all_of(chain.rows.begin(), chain.rows.end(), [](const RowChain::Rows& rows) {
                       return rows.before == 0 && rows.after == 0;
                     });
  return apart ? static_cast<double>(std::max<int64_t>(1, program.facts.bounds(chain.points).lo))
               : typical(chain.points, program.facts);
}

// The images that every run has, as a share of the typical number.
double sure_share(const loop::Program& program, const RowChain& chain) {
  const loop::Nest& last = *nest_at(program, program.steps, chain.at.back());
  double typically = std::max(1.0, typical(chain.points, program.facts)) / points_of(program, chain);
  for (Expr var : chain.images.back()) typically *= typical(extent_of(last, var), program.facts);
  return images_of(program, chain) / std::max(typically, 1.0);
}

double strips_of_image(const loop::Program& program, const RowChain& chain) {
  const double points = points_of(program, chain);
  return std::min(points, 2 * std::ceil(std::ceil(points / static_cast<double>(chain.most)) / 2));
}

// How many times as long nest i takes in tiles as unfused: a GEMM of few rows or columns, such as a weight
// gradient for one channel, fills no register tile.
double slowdown(const loop::Program& program, const RowChain& chain, size_t i) {
  const auto contraction = loop::classify_contraction(*nest_at(program, program.steps, chain.at[i]));
  if (!contraction) return 1;
  const RowChain::Rows& rows = chain.rows[i];
  const double points = std::ceil(points_of(program, chain) / strips_of_image(program, chain));
  const double in_tile =
      points * static_cast<double>(rows.scale) + static_cast<double>(rows.after - rows.before);
  for (const std::vector<loop::Dim>* side : {&contraction->m, &contraction->n}) {
    if (!loop::is_var_of(rows.var, *side)) continue;
    double whole = 1, tile = 1;
    for (const loop::Dim& dim : *side) {
      const double extent = std::max(1.0, typical(dim.extent, program.facts));
      whole *= extent;
      if (dim.var == rows.var)
        tile *= std::min(extent, in_tile);
      else if (std::ranges::count(chain.images[i], dim.var) == 0)
        tile *= extent;
    }
    return std::max(1.0, std::min(kLeastSide, whole) / tile);
  }
  return 1;
}

}  // namespace

double work_of(const loop::Program& program, const loop::Nest& nest) {
  return typical(loop::cost_of(program, nest).flops, program.facts) / kFlopsPerCycle;
}

double cycles_to_move(const loop::Program& program, Expr bytes) {
  return typical(bytes, program.facts) / kCacheBytes;
}

double traffic_of(const loop::Program& program, const RowChain& chain, BufferId id) {
  const double bytes = typical_bytes(program, id) * sure_share(program, chain);
  return bytes <= kThreadCache ? 0 : 2 * bytes / (bytes <= kAllCaches ? kCacheBytes : kMemoryBytes);
}

bool choose_length(const loop::Program& program, RowChain& chain, int64_t cache, std::string& why) {
  const double images = images_of(program, chain);
  const auto fits_kept = [&] {
    return !chain.kept || typical(passing_bytes(program, chain, chain.own()), program.facts) <= kKeptBytes;
  };
  for (chain.most = kMostUnits; chain.most > 0; --chain.most)
    if (images * strips_of_image(program, chain) >= kLeastTiles &&
        typical(own_bytes(program, chain), program.facts) <= static_cast<double>(cache) && fits_kept())
      return true;
  why = "there are too few rows, or one is too large for a cache";
  return false;
}

int64_t finest_length(const loop::Program& program, const RowChain& chain, const TileCost& cost) {
  constexpr double kShare = 0.2;
  const double points = images_of(program, chain) * points_of(program, chain);
  const double tile = cost.weights / kWeightBytes + kNestOfStrip * static_cast<double>(chain.at.size());
  const double finest = std::ceil(tile * points / std::max(1.0, kShare * cost.work));
  return finest < static_cast<double>(chain.most) ? std::max<int64_t>(1, static_cast<int64_t>(finest)) : 0;
}

TileCost cost_of_tiles(const loop::Program& program, const Flow& flow, const RowChain& chain) {
  TileCost cost;
  const double images = images_of(program, chain), points = points_of(program, chain);
  for (int at : chain.at)
    for (BufferId id : flow.effects(at).reads)
      if (program[id].storage == loop::Storage::kParameter) cost.weights += typical_bytes(program, id);
  for (size_t i = 0; i < chain.passing.size(); ++i) {
    cost.passing += typical(passing_bytes(program, chain, i), program.facts);
    // An intermediate that stays in memory is still written.
    cost.traffic += traffic_of(program, chain, chain.passing[i].buffer) * (i < chain.own() ? 1 : 0.5);
  }
  for (size_t i = 0; i < chain.at.size(); ++i) {
    const RowChain::Rows& rows = chain.rows[i];
    const double work =
        work_of(program, *nest_at(program, program.steps, chain.at[i])) * sure_share(program, chain);
    cost.work += work;
    cost.again += work * (slowdown(program, chain, i) - 1);
    cost.again += work * static_cast<double>(rows.after - rows.before) * kThreads /
                  (static_cast<double>(rows.scale) * points * std::max(images, 1.0));
  }
  cost.overhead =
      cost.again + images * strips_of_image(program, chain) *
                       (cost.weights / kWeightBytes + kNestOfStrip * static_cast<double>(chain.at.size()));
  return cost;
}

}  // namespace stridec::schedule
