// GemmPlan: how a contraction runs on the micro-kernels of gemm.h, that is, a schedule of kernel "gemm.*" as
// a struct.
//
// Text form, one directive each, dims outer first:
//   batch %g ...              dims that both factors depend on, or that cannot be flattened with the others:
//                             outer loops
//   rows %n %y %x             dims of the broadcast factor a alone, flattened
//   columns %o                dims of the vectorised factor b alone, flattened, split into panels
//   segments %r %s            reduced dims with one run per point
//   run %c                    reduced dims that are contiguous in a (or become so by packing), flattened
//   a direct|pack|lines       rows of a are read in place; or a block of rows is copied to scratch first, as
//                             a whole or once for all taps of the first segment that share lines
//                             (gemm_lines.h)
//   b weights P|compact P|direct|stage
//                             panels of P columns made at compile time; panels of the parts that b is
//                             computed from (block_quantized.h); rows of b read in place; or rows of b copied
//                             to scratch
//   bytes B                   rows of a are integers times one scale per B consecutive k (loop::Reduce):
//                             multiplies these integers by compact weights without conversion, in sums over B
//                             k, instead of calling the kernel
//   tiles T [L]               most register tiles of rows per task; with L, fewer where there would be few
//                             tasks, but at least L (split_rows())
//   chunk K                   most k per call of the micro-kernel, so that this much of a panel stays in
//                             cache while a task's tiles use it; with several segments, whole segments.
//                             Default: all of k
//   order rows|columns        the side whose tasks are outer; neighbouring tasks share its copy in scratch
#pragma once

#include <string_view>
#include <vector>

#include "compiler/kernels/contraction.h"
#include "compiler/kernels/gemm.h"

namespace stridec::kernels {

struct GemmPlan {
  enum class A { kDirect, kPack, kLines };
  enum class B { kWeights, kCompact, kDirect, kStage };

  const GemmKernel* kernel = nullptr;
  std::vector<sym::Expr> batch, rows, columns, segments, run;
  A a = A::kDirect;
  B b = B::kDirect;
  int64_t panel = 0;  // kWeights: a multiple of the kernel's columns; kCompact: the kernel's columns
  int64_t bytes = 0;  // 0: none
  int64_t tiles = 1, least_tiles = 0;  // least_tiles 0: rows are not split further to make more tasks
  int64_t chunk = 0;                   // 0: all
  bool rows_outer = true;
};

constexpr std::string_view name(GemmPlan::A a) {
  return a == GemmPlan::A::kDirect ? "direct" : a == GemmPlan::A::kPack ? "pack" : "lines";
}

bool is_gemm(const loop::Schedule& schedule);
loop::Schedule to_schedule(const GemmPlan& plan);
GemmPlan to_plan(const loop::Schedule& schedule);  // requires is_gemm(schedule)

// How the rows of a GEMM are divided among tasks: into bands of consecutive tasks, with the same number of
// blocks per band; a block is the rows of one task. Bands differ by at most one row or, with several images
// (ContractionFrame::Images), one tile. With one image each band has the same number of tiles.
//
// With two bands, two threads get one each. Rows that a thread produced in the previous launch are in its own
// cache. If it shares rows with another thread, half of them come from a cache that may be farther away in
// the machine's hierarchy, and it waits. Every band reads all panels, so there are two bands only if a band
// has enough rows to hide that, or if an odd number of panels cannot be divided evenly. Tile registers wait
// less for rows than for panels: they need at least as many rows as columns, or an eighth of that if all
// panels stay in L2. Two bands are used only for constant weights, which are not copied per block.
//
// The most tiles of a task suit typical sizes. A run of fewer rows would have fewer tasks than a machine has
// cores, so with least_tiles a run is split into kManyTasks tasks, or as many as have that many tiles.
inline constexpr int64_t kManyTasks = 64;  // for which 16 threads still share the work evenly

struct RowSplit {
  sym::Expr bands, tiles;
  sym::Expr blocks;  // per band
};
RowSplit split_rows(const GemmPlan& plan, sym::Expr images, sym::Expr image_rows, sym::Expr columns,
                    sym::Expr k, const CpuTarget& target);

// Tiles, and rows per tile, up to which multiplying is faster than loading the panel from beyond L1.
inline constexpr int64_t kFewTiles = 3, kFewRows = 6;

// Maximum k of a piece of a panel whose tiles are so few: the piece in use and the one being prefetched fit
// in L1 together. 0: all panels stay in L2, or tiles of the kernel are too high. `columns`: of all batch
// points.
int64_t short_chunk(const GemmPlan& plan, int64_t k, int64_t columns, const CpuTarget& target);

// The dims of the nest or of its reduction with these variables, in this order.
std::vector<loop::Dim> dims_by_name(const loop::Nest& nest, const Contraction& contraction,
                                    const std::vector<sym::Expr>& vars);

}  // namespace stridec::kernels
