// How a contraction runs on the micro-kernels of gemm.h: what a schedule of kernel "gemm.*" says, as a
// struct.
//
// Text form, one directive each, dims outer first:
//   batch %g ...              dims that both factors keep, or that do not run as one with the others: an outer loop
//   rows %n %y %x             dims of the broadcast factor a alone, flattened
//   columns %o                dims of the vectorised factor b alone, flattened, cut into panels
//   segments %r %s            reduced dims, one run each
//   run %c                    reduced dims that a holds contiguously (or that packing makes so), flattened
//   a direct|pack|lines       rows of a are read in place, or a block of rows is copied to scratch first, whole or once for
//                             all places of the first segment that see the same lines (gemm_lines.h)
//   b weights P|compact P|direct|stage
//                             panels of P columns made at compile time, or panels of what b is computed from
//                             (block_quantized.h), rows of b read in place, or copied to scratch
//   bytes B                   rows are integers times one number in each B of k (loop::Reduce): products of these integers by
//                             compact weights as they stand, in sums of B, in place of the kernel's
//   tiles T                   most register tiles of rows per task (split_rows())
//   chunk K                   most k that a call of the micro-kernel sums, so that as much of a panel stays in cache
//                             while a task's tiles pass by; of several segments whole ones; all of k where there is none
//   order rows|columns        which side's tasks are outer; its copy in scratch is shared by neighbours
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
  int64_t panel = 0;  // kWeights: a multiple of the kernel's columns; kCompact: these
  int64_t bytes = 0;  // 0: none
  int64_t tiles = 1;
  int64_t chunk = 0;  // 0: all
  bool rows_outer = true;
};

constexpr std::string_view name(GemmPlan::A a) {
  return a == GemmPlan::A::kDirect ? "direct" : a == GemmPlan::A::kPack ? "pack" : "lines";
}

bool is_gemm(const loop::Schedule& schedule);
loop::Schedule to_schedule(const GemmPlan& plan);
GemmPlan to_plan(const loop::Schedule& schedule);  // of an is_gemm() schedule

// How a product's rows are shared out: in bands, whose tasks follow each other, of as many blocks each, which are a task's
// rows. Bands differ by a row at most, of several images (ContractionFrame::Images) by a tile; of one image each has as many
// tiles.
//
// Of two bands, two threads get one each. Rows that a thread has made itself, in the launch before, lie in its own cache; of
// rows that it shares with another it reads half from a cache that may lie behind another level of the machine than its own,
// and waits. Each band meets all panels, so that there are two only where a band has rows enough to hide that, or where an odd
// number of panels would not part evenly. On tile registers, which wait less for rows than for panels, it takes more rows than
// columns, or almost as many where all panels stay in L2. Of weights alone, which are not copied for each block.
struct RowSplit {
  sym::Expr bands, tiles;
  sym::Expr blocks;  // of a band
};
RowSplit split_rows(const GemmPlan& plan, sym::Expr images, sym::Expr image_rows, sym::Expr columns,
                    sym::Expr k, const CpuTarget& target);

// The dims with these variables, in this order, of the nest or of its reduce.
std::vector<loop::Dim> dims_by_name(const loop::Nest& nest, const Contraction& contraction,
                                    const std::vector<sym::Expr>& vars);

}  // namespace stridec::kernels
