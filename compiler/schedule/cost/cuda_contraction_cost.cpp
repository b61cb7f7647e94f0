#include "compiler/schedule/cost/cuda_contraction_cost.h"

#include <algorithm>
#include <cmath>

namespace stridec::schedule {
namespace {

// What the model knows of a multiprocessor beyond GpuTarget, per clock. Fitted to 441 GEMMs and convolutions
// of 16-bit floats on an H200 (tests/gpu/matrix_jobs.cpp, part `plans`): its choice takes 0.6 % longer than
// the fastest, on average.
constexpr double kClock = 1.7e9;
constexpr double kSumElement = 0.157;     // of a sum through shared memory
constexpr double kResultElement = 0.125;  // of a narrow result, finished where the sum was computed
constexpr double kSumStatement = 0.0017;  // per epilogue statement of cost 1
constexpr double kWarpGroupFlops = 4096;  // 16-bit, by wgmma; the rate in bytes is the same for all types
constexpr double kTensorFlops = 2000;     // by mma.sync
constexpr double kScalarFlops = 216;      // f32, multiply-adds alone; half of it at compute capability 8.0
// For kernels whose warps split the depth: the share of the flop rate of others, a warp's read of 16 bytes
// per thread, and the latency of the ring (replaces kLoad). Fitted to 24 f32 GEMMs on the same GPU (part
// `sizes`): the choice takes 1.3 % longer than the fastest.
constexpr double kSlicedFlops = 0.94, kSlicedRead = 3.7, kSlicedLoad = 3000;
constexpr double kSharedBytes = 97;  // by mma.sync; wgmma's reads keep up with its multiply-adds
constexpr double kL2Bytes = 90;
// For the part of a box beyond the matrix, which is filled with zeros: bytes per clock of a block's copies,
// and of memory traffic to all blocks.
constexpr double kZeroCopies = 15, kZeroBytes = 36;
constexpr double kGatherBytes = 37;    // of a window's pixels, by a warp group
constexpr double kWindowPixel = 2.35;  // per pixel, by the copy engine, for any number of channels
// k*Step: barrier and addresses of a step. k*Tile: launch, first loads and end of a tile.
constexpr double kWarpGroupStep = 146, kTensorStep = 330, kScalarStep = 180;
// Instructions of a thread per step of the depth, besides its multiply-adds and reads.
constexpr double kScalarOthers = 6;
constexpr double kWarpGroupTile = 1000, kTile = 3000;
// For large tiles, whose groups hide each other's barriers. kLargeStep: overhead of a step as a share of its
// multiply-adds, if that is less than kWarpGroupStep. kLargeLoad replaces kLoad for a block that continues
// with another tile, whose loads are in flight. Fitted to 13 GEMMs of 16-bit floats from networks, with up to
// six tiles each (part `close`, with and without pauses): the choice takes 0.4 % longer than the fastest.
constexpr double kLargeTile = 128 * 128, kLargeStep = 0.15, kLargeLoad = 2900;
// From requesting a stage of the ring to having it, with all other stages in flight. kLoadMemory is added if
// everything comes from memory.
constexpr double kLoad = 3300, kLoadMemory = 2500;
// If one side has at most kFewPoints, the tiles along the other side request the same lines at the same time.
// Each tile but one then adds kAgain of the memory time.
constexpr double kFewPoints = 64, kAgain = 0.25;
// Exchange of partial sums in a cluster: fixed, per squared number of blocks (large clusters are hard to
// place), and per element of the tile.
constexpr double kExchange = 1500, kExchangeBlocks = 70, kExchangeElement = 0.4;
constexpr double kPeers = 3000, kPeersElement = 0.2;  // where blocks read each other's sums
// If blocks leave their partial sums in memory: the last block's wait, and per element of a part.
constexpr double kParts = 4000, kPartsElement = 0.1, kSpills = 4;
// share of the smaller of compute and memory time that is not hidden by the other
constexpr double kShown = 0.05;
// Factors on the epilogue cost of a sum: one warp group runs it while another multiplies; it is the block's
// only warp group; another block with two or more groups runs it at the same time; there is no loading warp
// group.
constexpr double kAlone = 2.74, kSingle = 1.88, kBeside = 1.1, kBarely = 2.4;

}  // namespace

using kernels::MatrixFamily;
using kernels::MatrixKernel;
using kernels::MatrixPlan;

double element_cycles(bool in_registers, double statements) {
  return (in_registers ? kResultElement : kSumElement) + kSumStatement * statements;
}

double cycles(const MatrixPlan& plan, Lines rows, Lines columns, const GemmShape& s, double element,
              bool weights, const GpuTarget& target) {
  const MatrixKernel& k = *plan.kernel;
  const double split = static_cast<double>(plan.split);
  const double tiles = s.batch * std::ceil(s.rows / k.rows) * std::ceil(s.columns / k.columns) * split;
  const double steps = std::ceil(std::ceil(s.depth / k.depth) / split);
  const double macs = double(k.rows) * k.columns * k.depth;
  double flops = k.is_wgmma()                     ? kWarpGroupFlops
                 : k.family == MatrixFamily::kMma ? kTensorFlops * (target.capability < 90 ? 0.85 : 1)
                                                  : kScalarFlops * (target.capability == 80 ? 0.5 : 1);
  if (k.is_tensor()) flops *= 2.0 / k.element_bytes;
  if (k.element_bytes == 8) flops /= 2;
  double read = 0;  // cycles of the warps' reads from shared memory in a step
  if (!k.is_tensor()) {
    const double warp_rows = double(k.rows) / k.warps_rows,
                 warp_columns = double(k.columns) / k.warps_columns, sums = warp_rows * warp_columns / 32;
    const double tall = warp_rows >= warp_columns && !k.is_sliced() ? 8 : 4;
    const double reads = (warp_rows / tall + warp_columns / (32 / tall)) * k.element_bytes / 16;
    flops *= sums / (sums + reads + kScalarOthers) * (k.is_sliced() ? kSlicedFlops : 1);
    if (k.is_sliced()) read = reads * k.depth * kSlicedRead;
  }
  if (k.family == MatrixFamily::kMma) {
    const double warp_rows = double(k.rows) / k.warps_rows,
                 warp_columns = double(k.columns) / k.warps_columns;
    read = (warp_rows + warp_columns) * k.depth * k.element_bytes * k.warps_rows * k.warps_columns /
           kSharedBytes;
  }
  // Clusters of 4 and more do not fit every group of multiprocessors.
  const bool clusters = target.clusters && k.element_bytes < 8;
  const double sharers = clusters ? split : 1;  // that share the sums
  const double processors = target.multiprocessors * (split > 2 && clusters ? 0.92 : 1);
  const double together = std::min<double>(k.blocks_sm, std::ceil(tiles / processors));
  // The part of a box beyond the matrix is filled with zeros.
  const double row_tiles = std::ceil(s.rows / k.rows), column_tiles = std::ceil(s.columns / k.columns);
  const double rows_beyond = row_tiles * k.rows - s.rows,
               columns_beyond = column_tiles * k.columns - s.columns;
  const double line = k.depth * k.element_bytes,
               zeros = k.is_wgmma() && rows != Lines::kGathered && columns != Lines::kGathered
                           ? (rows_beyond / row_tiles + columns_beyond / column_tiles) * line
                           : 0;
  double step = std::max(
      {2 * macs / flops, read, ((k.rows + k.columns) * line - zeros) / kL2Bytes + zeros / kZeroCopies});
  if (k.is_wgmma() && (rows == Lines::kGathered || columns == Lines::kGathered))
    step = std::max(step, double(k.rows) * k.depth * k.element_bytes / kGatherBytes);
  if (k.is_wgmma() && (rows == Lines::kWindows || columns == Lines::kWindows))
    step = std::max(step, kWindowPixel * (rows == Lines::kWindows ? k.rows : k.columns));
  // Blocks on one multiprocessor hide each other's waits and epilogues, but not their multiply-adds.
  const bool large = k.is_wgmma() && k.workers() > 128 && k.rows * k.columns >= kLargeTile;
  const double overhead = large           ? std::min(kWarpGroupStep, kLargeStep * 2 * macs / flops)
                          : k.is_wgmma()  ? kWarpGroupStep
                          : k.is_tensor() ? kTensorStep
                          : k.is_sliced() ? 0
                                          : kScalarStep;
  const double tile = k.is_wgmma() ? kWarpGroupTile : kTile;
  const double who = !k.is_wgmma()          ? kBarely
                     : k.turns              ? 1
                     : k.tile_groups() == 1 ? kSingle
                     : together > 1         ? kBeside
                                            : 1;
  const double sums = k.rows * k.columns * element * who;
  const double exchange =
      split == 1  ? 0
      : !clusters ? kParts + kPartsElement * (split + 1) * std::min<double>(k.rows, s.rows) * k.columns
                  : kExchangeBlocks * split * split + (k.is_wgmma() ? kExchange : kPeers) +
                        (k.is_wgmma() ? kExchangeElement : kPeersElement) * k.rows * k.columns;
  const double bytes = s.batch * (s.rows + s.columns) * s.depth * k.element_bytes;
  const double loaded = s.batch * row_tiles * column_tiles * std::ceil(s.depth / k.depth) *
                        ((k.rows + k.columns) * line - zeros);
  // Blocks that share little data wait for memory itself, all at the same time.
  const double from_memory = std::min(1.0, bytes / loaded);
  const double load = k.is_sliced() ? kSlicedLoad
                                    : (large && tiles > processors * together ? kLargeLoad : kLoad) +
                                          kLoadMemory * from_memory * from_memory;
  // Each block of a cluster has one tile.
  const bool ring = k.is_wgmma() || k.is_sliced(),
             early = weights && (split > 1 || k.is_sliced()) && ring && tiles <= processors * together;
  const double waits = ring ? std::max(0.0, steps - (early ? k.stages : 0)) * load / k.stages : 0,
               products = std::max(steps * (step * together + overhead), waits);
  double busy = std::ceil(tiles / (processors * together)) * (products + tile + sums / sharers + exchange);
  if (!k.is_tensor()) {  // the blocks of a partial last wave have a larger share of a multiprocessor
    const double all = processors * together, waves = std::floor(tiles / all);
    const auto wave = [&](double blocks) {
      return std::max(steps * std::max(step * blocks, step + overhead), waits) + tile + sums / sharers +
             exchange;
    };
    const double rest = std::ceil((tiles - waves * all) / processors);
    busy = waves * wave(together) + (rest > 0 ? wave(rest) : 0);
  }
  if (k.turns) {  // one group's sums are stored while the other multiplies
    const double alone = kAlone * sums;
    busy = tile + (std::ceil(tiles / processors) - 1) * std::max(products, (products + alone) / 2) +
           products + alone;
  }
  const double beyond =
      s.batch * s.depth * k.element_bytes * (rows_beyond * column_tiles + columns_beyond * row_tiles);
  // The last sums are stored after all loads.
  const double again = k.is_wgmma() && std::min(s.rows, s.columns) <= kFewPoints
                           ? 1 + kAgain * (s.rows < s.columns ? row_tiles - 1 : column_tiles - 1)
                           : 1;
  const double memory = again * memory_cycles(bytes, target) +
                        beyond / (kZeroBytes * target.multiprocessors) + sums / sharers + exchange;
  // Partial sums that do not fit L2 spill to memory.
  const bool spills =
      split > 1 && !clusters && tiles * k.rows * k.columns * k.element_bytes > target.l2_bytes;
  if (spills) busy *= kSpills;
  // The longer of the two hides the other, except for a small share.
  return std::max(busy, memory) + kShown * std::min(busy, memory);
}

double row_cycles(const MatrixKernel& kernel, const GemmShape& s, double cost) {
  // Instructions of a warp: per element of a statistic, and per computed element in addition to its
  // statements; a scheduler has two warps. kWaits: what all rows wait for, that is the first loads, the sums
  // of a thread group and barriers.
  constexpr double kStatistic = 4, kMade = 6, kStatement = 1, kSchedulers = 4, kWaits = 1100;
  const double warps = std::pow(2, std::ceil(std::log2(s.columns))) / 32,
               held = static_cast<double>(kernel.held_steps) * kernel.depth;
  return kWaits + warps / kSchedulers * (s.depth * kStatistic + held * (kMade + kStatement * cost));
}

double row_kernel_cycles(double rows, double elements, const GpuTarget& target) {
  // per element of a row; a block computes one row at a time
  constexpr double kKernel = 3000, kElement = 0.25;
  return kKernel + kElement * elements * std::ceil(rows / target.multiprocessors);
}

double memory_cycles(double bytes, const GpuTarget& target) {
  return bytes * kClock / (target.memory_gb_s * 1e9);
}

}  // namespace stridec::schedule
