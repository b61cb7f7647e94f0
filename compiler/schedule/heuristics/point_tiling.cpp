#include "compiler/schedule/heuristics/point_tiling.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>

#include "compiler/base/sort.h"
#include "compiler/kernels/point_window.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/typical.h"

namespace stridec::schedule {
namespace {

using sym::Expr;

constexpr int64_t kCounts[] = {2, 3, 4, 5, 7, 8};  // of points along a dim
constexpr double kMostSums = 64;                   // in registers of a thread
constexpr double kMostSteps = 4096;                // of a thread's windows
// Highest share of the loads of separate points. If more remain, a block does not pay, since L1 serves them.
constexpr double kShared = 0.75;

// Counts what windows of neighbouring points load.
class Overlap {
 public:
  Overlap(const loop::Program& program, const kernels::PointWindow& window, const loop::Nest& nest) {
    for (const loop::Reduce* reduce : window.reduces) {
      Window w{.reduce = reduce, .taps = kernels::taps_of(*reduce), .loads = {}};
      results_ += static_cast<double>(reduce->results.size());
      taps_ += static_cast<double>(w.taps.size() * reduce->results.size());
      for (const loop::Stmt& stmt : reduce->body)
        if (const auto* load = std::get_if<loop::Load>(&stmt.node))
          w.loads.push_back({byte_size(program[load->access.buffer].dtype), steps_of(*load, *reduce, nest)});
      windows_.push_back(std::move(w));
    }
  }

  double taps() const { return taps_; }  // of a point, over all results
  double results() const { return results_; }

  // The loads of two neighbours along the dim, as a share of their separate loads: 0.5 if they share all.
  double shared_along(Expr dim) const {
    const LoopPlan::Split two[] = {{dim, 2}};
    size_t together = 0, apart = 0;
    for (const Window& window : windows_)
      for (const Load& load : window.loads) {
        together += elements(window, load, two, {});
        apart += 2 * elements(window, load, {}, {});
      }
    return static_cast<double>(together) / static_cast<double>(apart);
  }

  struct Loads {
    double count = 0, bytes = 0;
    double narrow = 0;  // of types that are widened for computation
    double turns = 1;   // iterations of the loop that contains them
  };
  // The loads of a block's points together, each element once as long as it stays in registers
  // (kernels::RowLoop).
  Loads loads_of(std::span<const LoopPlan::Split> block, int64_t lanes) const {
    Loads out;
    std::vector<Expr> dims;
    for (const LoopPlan::Split& split : block) dims.push_back(split.dim), lanes *= split.factor;
    for (const Window& window : windows_) {
      const auto rows = kernels::window_row_loop(*window.reduce, dims, lanes);
      if (rows) out.turns = std::max(out.turns, static_cast<double>(window.reduce->dims[0].extent.value()));
      for (const Load& load : window.loads) {
        const double count = static_cast<double>(elements(window, load, block, rows));
        out.count += count;
        out.bytes += count * load.bytes;
        if (load.bytes < 4) out.narrow += count;
      }
    }
    return out;
  }

 private:
  // An element is identified by a hash, the sum of one step per dim. Different elements have different
  // hashes, except by chance.
  using Steps = LoopPlan::PerDim<uint64_t>;
  struct Load {
    int bytes;
    Steps steps;
  };
  struct Window {
    const loop::Reduce* reduce;
    std::vector<std::vector<int64_t>> taps;
    std::vector<Load> loads;
  };

  static uint64_t random_number(uint64_t of) {  // splitmix64
    of += 0x9e3779b97f4a7c15;
    of = (of ^ of >> 30) * 0xbf58476d1ce4e5b9;
    of = (of ^ of >> 27) * 0x94d049bb133111eb;
    return of ^ of >> 31;
  }

  static Steps steps_of(const loop::Load& load, const loop::Reduce& reduce, const loop::Nest& nest) {
    Steps out;
    std::vector<loop::Dim> dims = nest.dims;
    dims.insert(dims.end(), reduce.dims.begin(), reduce.dims.end());
    for (size_t d = 0; d < dims.size(); ++d) {
      uint64_t& step = out[dims[d].var];
      for (size_t i = 0; i < load.access.index.size(); ++i) {
        const auto linear = sym::linear_in(load.access.index[i], dims[d].var);
        const auto each = linear ? sym::as_const(linear->coefficient) : std::nullopt;
        // If an index is not linear, neighbours are assumed to share nothing.
        step += each ? static_cast<uint64_t>(*each) * random_number(i) : random_number(1000 + d);
      }
    }
    return out;
  }

  static size_t elements(const Window& window, const Load& load, std::span<const LoopPlan::Split> block,
                         const std::optional<kernels::RowLoop>& rows) {
    const uint64_t row = rows ? random_number(2000) : 0;
    std::vector<uint64_t> all;
    for (const std::vector<int64_t>& tap : window.taps) {
      uint64_t first = static_cast<uint64_t>(tap.empty() ? 0 : tap[0]) * row;
      for (size_t d = 0; d < tap.size(); ++d)
        first += static_cast<uint64_t>(tap[d]) * load.steps.at(window.reduce->dims[d].var);
      std::vector<uint64_t> points = {first};
      for (size_t d = 0; d < block.size(); ++d) {
        const uint64_t step = load.steps.at(block[d].dim) +
                              (rows && rows->across == d ? static_cast<uint64_t>(rows->step) * row : 0);
        std::vector<uint64_t> next;
        for (const uint64_t point : points)
          for (int64_t i = 0; i < block[d].factor; ++i)
            next.push_back(point + static_cast<uint64_t>(i) * step);
        points = std::move(next);
      }
      all.insert(all.end(), points.begin(), points.end());
    }
    std::sort(all.begin(), all.end());
    return static_cast<size_t>(std::unique(all.begin(), all.end()) - all.begin());
  }

  double results_ = 0, taps_ = 0;
  std::vector<Window> windows_;
};

// A block of points and its cost: instructions of a thread, iterations of the loop that contains them, and L1
// lines of a warp.
struct Block {
  std::vector<LoopPlan::Split> points;
  double threads, issued, turns, lines;

  // Cycles of a multiprocessor for `scale` times as many threads. Each of its four schedulers issues one
  // instruction per cycle: those of all its warps, and those of one more warp at the end, which waits for
  // memory in each iteration of a loop. L1 delivers one line per cycle.
  double cycles(double scale, const GpuTarget& target) const {
    constexpr double kWarp = 32, kSchedulers = 4, kLatency = 400;
    const double warps = scale * threads / kWarp / target.multiprocessors;
    return std::max((warps / kSchedulers + 1) * issued, warps * lines) + kLatency * turns;
  }
};

Block block_of(const loop::Nest& nest, const Overlap& overlap, std::vector<LoopPlan::Split> points,
               const sym::Facts& facts) {
  constexpr double kLanes = 32, kLine = 128;
  constexpr double kLoad = 4;     // instructions, including address and condition
  constexpr double kWiden = 1.5;  // instructions to widen a 16-bit value to 32 bits
  double threads = 1, count = 1;
  for (const loop::Dim& dim : nest.dims) {
    double here = 1;
    for (const LoopPlan::Split& split : points)
      if (split.dim == dim.var) here = static_cast<double>(split.factor);
    threads *= std::max(1.0, std::ceil(typical(dim.extent, facts) / here));
    count *= here;
  }
  const auto lanes = static_cast<double>(points[0].factor);
  const Overlap::Loads loads = overlap.loads_of(std::span(points).subspan(1), points[0].factor);
  const double issued = overlap.taps() * count + kLoad * loads.count + kWiden * lanes * loads.narrow;
  return {.points = std::move(points),
          .threads = threads,
          .issued = issued,
          .turns = loads.turns,
          .lines = loads.bytes * lanes * kLanes / kLine};
}

// Whether the access is to a weight that can be laid out with its dim `var` last.
bool can_turn(const loop::Program& program, const loop::Access& access, Expr var) {
  return program[access.buffer].storage == loop::Storage::kParameter &&
         std::count(access.index.begin(), access.index.end(), var) == 1;
}

// The blocks of a nest of small windows, those the model expects to be fastest first, for runs with `scale`
// times the typical number of points.
std::vector<Block> ranked_blocks(const loop::Program& program, const loop::Nest& nest,
                                 const GpuTarget& target, double scale) {
  const auto window = kernels::match_point_window(program, nest);
  if (!window || nest.dims.empty()) return {};
  const sym::Facts facts = loop::facts_of(program, nest);
  for (const loop::Dim& dim : nest.dims)
    if (sym::has_index(dim.extent)) return {};
  const loop::Dim fast = nest.dims.back();
  int least = 16;
  for (const loop::Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (!store) continue;
    const auto stride = loop::stride_of(program, store->access, fast.var, facts);
    if (!stride || !stride->is_const(1) || !store->access.mask.is_const(1)) return {};
    least = std::min(least, byte_size(program[store->access.buffer].dtype));
  }
  for (const loop::Load* load : window->loads) {
    const auto stride = loop::stride_of(program, load->access, fast.var, facts);
    if (sym::depends_on(load->access.mask, fast.var)) return {};
    if (!can_turn(program, load->access, fast.var) &&
        (!stride || !(stride->is_const(0) || stride->is_const(1))))
      return {};
    least = std::min(least, byte_size(program[load->access.buffer].dtype));
  }
  int64_t width = std::min(16 / least, 8);
  if (const auto extent = sym::as_const(fast.extent))
    while (*extent % width) width /= 2;
  if (width < 2) return {};
  const Overlap overlap(program, *window, nest);
  // The dims along which neighbours share most of their loads, best first.
  std::vector<std::pair<double, const loop::Dim*>> along;
  for (const loop::Dim& dim : std::span(nest.dims).first(nest.dims.size() - 1)) {
    const double shared = overlap.shared_along(dim.var);
    if (shared <= kShared) along.emplace_back(shared, &dim);
  }
  sort_stable(along, [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto counts = [&](size_t at) {
    std::vector<int64_t> out = {1};
    if (at < along.size())
      for (const int64_t count : kCounts)
        if (const auto extent = sym::as_const(along[at].second->extent);
            extent ? count <= *extent : (count & (count - 1)) == 0)
          out.push_back(count);
    return out;
  };
  std::vector<Block> blocks;
  for (const int64_t lanes : {width, width / 2})
    for (const int64_t first : counts(0))
      for (const int64_t second : counts(1)) {
        const double all = static_cast<double>(lanes * first * second);
        if (lanes < 2 || all * overlap.results() > kMostSums || all * overlap.taps() > kMostSteps) continue;
        std::vector<LoopPlan::Split> points = {{fast.var, lanes}};
        if (first > 1) points.push_back({along[0].second->var, first});
        if (second > 1) points.push_back({along[1].second->var, second});
        blocks.push_back(block_of(nest, overlap, std::move(points), facts));
      }
  sort_stable(blocks, [&](const Block& a, const Block& b) {
    return a.cycles(scale, target) < b.cycles(scale, target);
  });
  return blocks;
}

// The fewest points that a run can have, as a share of the typical number.
double least_share(const loop::Program& program, const loop::Nest& nest) {
  const sym::Facts facts = loop::facts_of(program, nest);
  double share = 1;
  for (const loop::Dim& dim : nest.dims)
    share *= static_cast<double>(std::max<int64_t>(1, facts.bounds(dim.extent).lo)) /
             std::max(1.0, typical(dim.extent, facts));
  return std::min(share, 1.0);
}

}  // namespace

LoopPlan::Dims memory_order(const loop::Program& program, const loop::Nest& nest) {
  const loop::Access* written = nullptr;
  for (const loop::Stmt& stmt : nest.body) {
    const auto* store = std::get_if<loop::Store>(&stmt.node);
    if (store && !written) written = &store->access;
  }
  const loop::Effects effects = loop::effects_of(nest);
  if (!written || effects.updates || nest.dims.size() < 2) return {};
  for (loop::BufferId id : effects.writes)
    if (std::count(effects.reads.begin(), effects.reads.end(), id)) return {};
  const sym::Facts facts = loop::facts_of(program, nest);
  std::vector<std::tuple<double, size_t, Expr>> dims;  // longest step first
  for (const loop::Dim& dim : nest.dims) {
    const auto stride = loop::stride_of(program, *written, dim.var, facts);
    if (sym::has_index(dim.extent) || !stride) return {};
    const double step = std::fabs(typical(*stride, facts));
    if (step == 0) return {};  // a dim that does not move the store has no place in the order
    dims.emplace_back(-step, dims.size(), dim.var);
  }
  std::sort(dims.begin(), dims.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  LoopPlan::Dims order;
  bool same = true;
  for (size_t d = 0; d < dims.size(); ++d) {
    order.push_back(std::get<2>(dims[d]));
    same = same && order[d] == nest.dims[d].var;
  }
  return same ? LoopPlan::Dims() : order;
}

std::vector<std::vector<LoopPlan::Split>> point_blocks(const loop::Program& program, const loop::Nest& nest,
                                                       const GpuTarget& target, double scale) {
  std::vector<std::vector<LoopPlan::Split>> out;
  for (Block& block : ranked_blocks(program, nest, target, scale)) out.push_back(std::move(block.points));
  return out;
}

std::optional<double> point_cycles(const loop::Program& program, const loop::Nest& nest,
                                   const GpuTarget& target) {
  LoopPlan plan;
  plan.reorder = memory_order(program, nest);
  const std::vector<Block> blocks = ranked_blocks(program, reshaped(program, nest, plan), target, 1);
  if (blocks.empty()) return std::nullopt;
  return blocks[0].cycles(1, target);
}

bool choose_points(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                   LoopPlan& plan) {
  constexpr double kGain = 1.1;
  const std::vector<Block> usual = ranked_blocks(program, nest, target, 1);
  if (usual.empty()) return false;
  plan.points = usual[0].points;
  const double least = least_share(program, nest);
  const Block few = ranked_blocks(program, nest, target, least)[0];
  const auto gains = [&](double scale) { return usual[0].cycles(scale, target) / few.cycles(scale, target); };
  if (gains(least) < kGain) return true;
  double low = least, high = 1;
  while (high > 1.05 * low) {
    const double middle = std::sqrt(low * high);
    (gains(middle) > 1 ? low : high) = middle;
  }
  const double points = typical_points(nest.dims, loop::facts_of(program, nest));
  plan.few = static_cast<int64_t>(high * points);
  plan.few_points = few.points;
  return true;
}

}  // namespace stridec::schedule
