#include "compiler/codegen/cpu/contraction.h"

#include <set>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_columns.h"
#include "compiler/codegen/cpu/contraction_frame.h"
#include "compiler/codegen/cpu/contraction_rows.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cpu {
namespace {

using loop::Stmt;
using loop::ValueId;

// Multiply-adds that are worth waking a thread for: some microseconds.
constexpr int64_t kGrain = int64_t{1} << 20;

// What runs on the sums: the statements that stores need, in order.
class Epilogue {
 public:
  explicit Epilogue(const ContractionFrame& f) : f_(f) {
    // What does not depend on the column runs once per row, up to the first store.
    std::set<ValueId> by_column = {f.contraction.reduce->results[0]};
    bool stored = false;
    for (const Stmt* kept : epilogue_of(f.nest, f.contraction)) {
      const Stmt& stmt = *kept;
      stored = stored || std::holds_alternative<loop::Store>(stmt.node);
      bool depends = stored;
      loop::for_each_use(stmt, [&](ValueId id) { depends = depends || by_column.contains(id); });
      loop::for_each_expr(stmt, [&](sym::Expr e) { depends = depends || depends_on_any(e, f.columns); });
      if (depends) loop::for_each_result(stmt, [&](ValueId id) { by_column.insert(id); });
      (depends ? column_ : row_).push_back(&stmt);
    }
  }

  // Whether every access runs through the rows as through one dim, so that the row's number replaces their
  // indices.
  bool rows_merge() const {
    for (const auto* list : {&row_, &column_}) {
      for (const Stmt* stmt : *list) {
        if (const loop::Access* access = loop::access_of(*stmt)) {
          if (depends_on_any(access->mask, f_.rows)) return false;
          if (!kernels::merged_step(kernels::offset_of(f_.program, *access, f_.facts), f_.rows, f_.facts))
            return false;
        } else {
          bool depends = false;
          loop::for_each_expr(*stmt, [&](sym::Expr e) { depends = depends || depends_on_any(e, f_.rows); });
          if (depends) return false;
        }
      }
    }
    return true;
  }

  const std::vector<const Stmt*>& row() const { return row_; }
  const std::vector<const Stmt*>& column() const { return column_; }

 private:
  const ContractionFrame& f_;
  std::vector<const Stmt*> row_, column_;
};

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target)
      : f_(program, nest, target),
        text_(f_.text),
        epilogue_(f_),
        merge_(f_.rows.size() < 2 || epilogue_.rows_merge()),
        rows_(f_, !merge_),
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
    print_epilogue();
    text_.line("first_row += tile_rows;");
    text_.close();
  }

  void print_epilogue() {
    text_.open("for (int64_t i = 0; i < tile_rows; ++i)");
    Body body = f_.body();
    for (size_t d = 0; d < f_.rows.size(); ++d) {
      if (!merge_) {
        const std::string name = cat("row_", d);
        text_.line(cat("const int64_t ", name, " = ", rows_.row_index(d, "i"), ";"));
        body.set_index(f_.rows[d].var, name);
      } else if (d + 1 < f_.rows.size()) {
        body.set_index(f_.rows[d].var, "0");
      } else {
        text_.line("const int64_t row = first_row + i;");
        body.set_index(f_.rows[d].var, "row");
      }
    }
    for (const Stmt* stmt : epilogue_.row()) body.print(*stmt);
    const auto known = sym::as_const(extent_of(f_.columns));
    text_.line("int64_t j = 0;");
    text_.open(cat("for (; j + ", f_.lanes, " <= live_columns; j += ", f_.lanes, ")"));
    print_columns(body, "");
    text_.close();
    if (!known || *known % f_.lanes != 0) {
      text_.open("if (j < live_columns)");
      text_.line("const uint64_t live = ((uint64_t)1 << (live_columns - j)) - 1;");
      print_columns(body, "live");
      text_.close();
    }
    text_.close();
  }

  void print_columns(Body body, const std::string& live) {
    for (size_t d = 0; d + 1 < f_.columns.size(); ++d) body.set_index(f_.columns[d].var, "0");
    text_.line("const int64_t column = first_column + j;");
    if (!f_.columns.empty()) {
      body.set_index(f_.columns.back().var, "column");
      body.set_lanes(f_.columns.back().var, f_.lanes, live);
    }
    const std::string vector = f_.element(f_.lanes);
    const std::string at = cat("tile + i * ", f_.plan.kernel->columns(), " + j");
    const bool scalar = f_.columns.empty();
    text_.line(scalar ? cat("const ", f_.element(), " sum = *(", at, ");")
                      : cat("const ", vector, " sum = *(const ", vector, "*)(", at, ");"));
    body.set_value(f_.contraction.reduce->results[0],
                   {.text = "sum", .dtype = f_.contraction.dtype, .width = scalar ? 1 : f_.lanes});
    for (const Stmt* stmt : epilogue_.column()) body.print(*stmt);
  }

  ContractionFrame f_;
  KernelText& text_;
  Epilogue epilogue_;
  bool merge_;
  ContractionRows rows_;
  ContractionColumns columns_;
};

}  // namespace

Kernel emit_contraction(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return Emitter(program, nest, target).emit();
}

}  // namespace stridec::codegen::cpu
