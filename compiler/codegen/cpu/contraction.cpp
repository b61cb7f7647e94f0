#include "compiler/codegen/cpu/contraction.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_columns.h"
#include "compiler/codegen/cpu/contraction_epilogue.h"
#include "compiler/codegen/cpu/contraction_frame.h"
#include "compiler/codegen/cpu/contraction_rows.h"

namespace stridec::codegen::cpu {
namespace {

// Multiply-adds that are worth waking a thread for: some microseconds.
constexpr int64_t kGrain = int64_t{1} << 20;

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target)
      : text_(program, target),
        f_(text_, program, nest, kernels::to_plan(nest.schedule)),
        epilogue_(f_),
        rows_(f_, epilogue_.wants_row_indices()),
        columns_(f_) {}

  Kernel emit() {
    const kernels::GemmKernel& kernel = *f_.plan.kernel;
    const sym::Expr rows = extent_of(f_.rows), columns = extent_of(f_.columns);
    const sym::Expr tiles = sym::ceildiv(rows, kernel.rows), blocks = sym::ceildiv(tiles, f_.plan.tiles);
    const sym::Expr panels = sym::ceildiv(columns, kernel.columns());

    text_.line(cat("const int64_t rows = ", text_.size(rows), ", columns = ", text_.size(columns), ";"));
    text_.line(cat("const int64_t tiles = (rows + ", kernel.rows - 1, ") / ", kernel.rows,
                   ", blocks = (tiles + ", f_.plan.tiles - 1, ") / ", f_.plan.tiles, ";"));
    text_.line(
        cat("const int64_t panels = (columns + ", kernel.columns() - 1, ") / ", kernel.columns(), ";"));
    text_.line("if (begin >= end) return;");
    text_.line("const int64_t tile_base = rows / tiles, longer_tiles = rows % tiles;");
    text_.line(cat("void multiply(int64_t, int64_t, int64_t, const ", f_.element(), "* const*, const ",
                   f_.element(), "*, int64_t, ", f_.element(), "*, int64_t) __asm__(\"",
                   kernels::gemm_symbol(kernel, text_.target()),
                   "\") __attribute__((visibility(\"hidden\")));"));
    text_.line(cat("alignas(64) ", f_.element(), " tile[", kernel.rows * kernel.columns(), "];"));
    rows_.print_start();
    columns_.print_start();
    text_.line("int64_t block_ready = -1;");
    text_.open("for (int64_t task = begin; task < end; ++task)");
    print_task();
    text_.close();

    // Multiply-adds of a task; the loads of b count as four rows, which hide behind many rows and not behind
    // one.
    const sym::Expr task_rows = sym::min(rows, kernel.rows * f_.plan.tiles);
    const sym::Expr work = extent_of(f_.reduced) * kernel.columns() * (task_rows + 4);
    Kernel result = text_.finish(extent_of(f_.batch) * blocks * panels,
                                 sym::max(1, sym::floordiv(kGrain, sym::max(work, 1))));
    result.support.push_back(kernels::gemm_text(kernel, text_.target()));
    return result;
  }

 private:
  void print_task() {
    const kernels::GemmKernel& kernel = *f_.plan.kernel;
    if (f_.plan.rows_outer) {
      text_.line("const int64_t panel = task % panels, block = task / panels % blocks;");
    } else {
      text_.line("const int64_t block = task % blocks, panel = task / blocks % panels;");
    }
    text_.line("const int64_t batch = task / (panels * blocks);");
    f_.print_batch_indices();
    text_.line(cat("const int64_t first_column = panel * ", kernel.columns(), ";"));
    text_.line(cat("const int64_t live_columns = columns - first_column < ", kernel.columns(),
                   " ? columns - first_column : ", kernel.columns(), ";"));
    text_.line("const int64_t first_tile = block * tiles / blocks, end_tile = (block + 1) * tiles / blocks;");
    text_.line(
        "const int64_t block_row = first_tile * tile_base + (first_tile < longer_tiles ? first_tile : "
        "longer_tiles);");
    text_.line(
        "const int64_t block_rows = end_tile * tile_base + (end_tile < longer_tiles ? end_tile : "
        "longer_tiles) - block_row;");
    text_.open("if (block_ready != batch * blocks + block)");
    text_.line("block_ready = batch * blocks + block;");
    rows_.print_block();
    text_.close();
    columns_.print_panel();
    text_.line("int64_t first_row = block_row;");
    text_.open("for (int64_t t = first_tile; t < end_tile; ++t)");
    text_.line("const int64_t tile_rows = tile_base + (t < longer_tiles);");
    rows_.print_tile();
    const bool packed = f_.plan.a == kernels::GemmPlan::A::kPack;
    const Dims one_segment;
    text_.line(cat("multiply(tile_rows, ", text_.size(packed ? sym::Expr(1) : extent_of(f_.segments)), ", ",
                   text_.size(extent_of(packed ? f_.reduced : f_.run)), ", a_rows, b, b_stride, tile, 0);"));
    epilogue_.print(rows_);
    text_.line("first_row += tile_rows;");
    text_.close();
  }

  KernelText text_;
  ContractionFrame f_;
  ContractionEpilogue epilogue_;
  ContractionRows rows_;
  ContractionColumns columns_;
};

}  // namespace

Kernel emit_contraction(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return Emitter(program, nest, target).emit();
}

}  // namespace stridec::codegen::cpu
