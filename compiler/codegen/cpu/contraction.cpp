#include "compiler/codegen/cpu/contraction.h"

#include <algorithm>
#include <limits>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/contraction_columns.h"
#include "compiler/codegen/cpu/contraction_epilogue.h"
#include "compiler/codegen/cpu/contraction_frame.h"
#include "compiler/codegen/cpu/contraction_rows.h"

namespace stridec::codegen::cpu {
namespace {

// Multiply-adds that are worth another thread: three microseconds, while waking it takes less than one.
constexpr int64_t kGrain = int64_t{1} << 19;
// Tile registers (AMX) process this many groups of k in the time that vectors take for one.
constexpr int kTileSpeed = 8;
// Sums over more k run in blocks, which limits their rounding errors (body_reduce.cpp).
constexpr int64_t kLongestChain = 1 << 14, kBlock = 1 << 12;
// From this many groups of k per epilogue operation on, the epilogue's time is negligible.
constexpr int kLongSum = 64;
constexpr std::string_view kNamespace = "products";  // of the micro-kernel's template
using kernels::kFewRows, kernels::kFewTiles;

int tile_elements(const ContractionShape& shape) {
  return shape.plan.kernel->rows * shape.plan.kernel->line();
}

// The bytes of a task's sums, which are in scratch if k is split by the schedule's chunk: all tiles of a task
// finish one piece before the next.
std::optional<sym::Expr> sums_bytes(const ContractionShape& shape) {
  const kernels::GemmPlan& plan = shape.plan;
  if (plan.chunk == 0) return std::nullopt;
  const auto k = sym::as_const(extent_of(shape.reduced));
  if (k && *k <= plan.chunk) return std::nullopt;
  return plan.tiles * (tile_elements(shape) * byte_size(plan.kernel->dtype));
}

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
    const sym::Expr panels = sym::ceildiv(columns, kernel.columns());
    const auto [images, image_rows] = f_.images();
    const auto [bands, tiles, blocks] =
        kernels::split_rows(f_.plan, images, image_rows, columns, extent_of(f_.reduced), text_.target());
    several_images_ = !images.is_const(1);
    several_bands_ = !bands.is_const(1);

    text_.line(cat("const int64_t rows = ", text_.size(rows), ", columns = ", text_.size(columns), ";"));
    if (several_images_)
      text_.line(cat("const int64_t image_rows = ", text_.size(image_rows), ", image_tiles = (image_rows + ",
                     kernel.rows - 1, ") / ", kernel.rows, ";"));
    text_.line(cat("const int64_t tiles = ",
                   several_images_  ? cat(text_.size(images), " * image_tiles")
                   : several_bands_ ? text_.size(tiles)
                                    : cat("(rows + ", kernel.rows - 1, ") / ", kernel.rows),
                   ", blocks = ", text_.size(blocks), ";"));
    if (several_bands_)
      text_.line(cat("const int64_t bands = ", text_.size(bands),
                     several_images_ ? "" : ", band_tiles = tiles / bands", ";"));
    text_.line(
        cat("const int64_t panels = (columns + ", kernel.columns() - 1, ") / ", kernel.columns(), ";"));
    text_.line("if (begin >= end) return;");
    // Most small GEMMs have one block and one tile; the division by their number would dominate.
    text_.line(
        "const auto share = [](int64_t whole, int64_t i, int64_t parts) { return parts == 1 ? whole * i : "
        "whole * i / parts; };");
    print_pieces();
    if (several_images_ || !several_bands_) print_tile_rows();
    if (columns_.bytes())
      columns_.bytes()->print_bytes_start();
    else
      multiply_ = f_.print_declaration();
    f_.print_shape_start();
    if (const auto bytes = sums_bytes(f_)) {
      text_.line(cat(f_.element(), "* const sums = (", f_.element(), "*)", text_.scratch(*bytes), ";"));
    } else {
      const int tiles = interleaves() ? 2 : short_chunk() > 0 ? kFewTiles : 1;
      text_.line(cat("alignas(64) ", f_.element(), " sums[", tiles * tile_elements(f_), "];"));
    }
    rows_.print_start();
    columns_.print_start();
    text_.line("int64_t block_ready = -1;");
    text_.open_tasks();
    print_task();
    text_.close_tasks();
    f_.print_shape_end();

    // The multiply-adds of a task and its epilogue's operations. Loads of b count as four rows: they are
    // hidden by the arithmetic of many rows, but not of one.
    const sym::Expr task_rows = f_.plan.least_tiles > 0 ? sym::ceildiv(rows, sym::max(1, bands * blocks))
                                                        : sym::min(rows, kernel.rows * f_.plan.tiles);
    const int at_once =
        kernel.deep ? f_.group() / kernel.lanes() : f_.group() * (kernel.tiles ? kTileSpeed : 1);
    const sym::Expr work = (sym::ceildiv(extent_of(f_.reduced), at_once) + epilogue_.operations()) *
                           kernel.columns() * (task_rows + 4);
    Kernel result = text_.finish(extent_of(f_.batch) * bands * blocks * panels,
                                 sym::max(1, sym::floordiv(kGrain, sym::max(work, 1))));
    if (!columns_.bytes()) result.support.push_back(kernels::gemm_text(kernel, text_.target()));
    result.asks_ahead = columns_.continuous();
    if (const auto bytes = columns_.panel_bytes(); bytes && f_.batch.empty())
      result.weights = {f_.b->load->access.buffer, *bytes, panels,
                        f_.plan.rows_outer ? sym::Expr(1) : blocks};
    if (interleaves())
      result.text.insert(result.text.find("extern \"C\""),
                         cat("namespace {\nnamespace ", kNamespace, " {\n",
                             kernels::gemm_template(kernel, text_.target()), "}\n}\n"));
    return result;
  }

 private:
  // Whether a tile's epilogue is interleaved with the next tile's multiply-adds. The two use different
  // execution units, and the out-of-order window is too small to overlap them otherwise. It requires a
  // micro-kernel of the nest's own, which short sums justify.
  bool interleaves() const {
    const auto k = sym::as_const(extent_of(f_.reduced));
    return !f_.plan.kernel->tiles && !columns_.computes() && f_.plan.tiles > 1 && k &&
           *k <= int64_t{kLongSum} * f_.group() * epilogue_.operations();
  }

  void print_task() {
    const kernels::GemmKernel& kernel = *f_.plan.kernel;
    // The index of the batch point or of the band; at most one of the two has several.
    const bool several = several_bands_ || !f_.batch.empty();
    const std::string outer = several_bands_ ? "band" : "batch";
    if (f_.plan.rows_outer) {
      text_.line("const int64_t panel = task % panels, above = task / panels;");
      text_.line(cat("const int64_t ", outer, " = ", several ? "share(above, 1, blocks)" : "0",
                     ", block = above - ", outer, " * blocks;"));
    } else {
      text_.line("const int64_t above = share(task, 1, blocks), block = task - above * blocks;");
      text_.line(cat("const int64_t ", outer, " = ", several ? "above / panels" : "0", ", panel = above - ",
                     outer, " * panels;"));
    }
    if (several_bands_ && !several_images_) {
      text_.line(
          "const int64_t band_row = share(rows, band, bands), band_rows = share(rows, band + 1, bands) - "
          "band_row, band_tile = band * band_tiles;");
      print_tile_rows();
    }
    f_.print_batch_indices();
    text_.line(cat("const int64_t first_column = panel * ", kernel.columns(), ";"));
    text_.line(cat("const int64_t live_columns = columns - first_column < ", kernel.columns(),
                   " ? columns - first_column : ", kernel.columns(), ";"));
    text_.line(cat("const int64_t number = ", outer, " * blocks + block;"));
    const std::string at = several_bands_ ? "number" : "block",
                      of = several_bands_ ? "bands * blocks" : "blocks";
    text_.line(cat("const int64_t first_tile = share(tiles, ", at, ", ", of, "), end_tile = share(tiles, ",
                   at, " + 1, ", of, ");"));
    const auto row_of = [&](const std::string& tile) {
      if (several_images_) return cat("row_of(", tile, ")");
      const std::string longer = cat("(", tile, " < longer_tiles ? ", tile, " : longer_tiles)");
      return several_bands_
                 ? cat("band_row + (", tile, " - band_tile) * tile_base + ", longer, " - band_tile")
                 : cat(tile, " * tile_base + ", longer);
    };
    text_.line(cat("const int64_t block_row = ", row_of("first_tile"), ";"));
    text_.line(cat("const int64_t block_rows = ", row_of("end_tile"), " - block_row;"));
    text_.open("if (block_ready != number)");
    text_.line("block_ready = number;");
    rows_.print_block();
    if (columns_.bytes()) print_rows_of_bytes();
    text_.close();
    if (columns_.bytes()) return print_tiles_of_bytes();
    if (columns_.computes()) print_one_row();
    columns_.print_panel();
    if (!in_pieces()) return print_tiles("0");
    text_.open("for (int64_t piece = 0; piece < pieces; ++piece)");
    print_tiles("piece");
    text_.close();
  }

  // The rows of a tile; the first tiles (of each image, of each band) have one more.
  void print_tile_rows() {
    const std::string_view of = several_images_ ? "image_" : several_bands_ ? "band_" : "";
    text_.line(cat("const int64_t tile_base = share(", of, "rows, 1, ", of, "tiles), longer_tiles = ",
                   of == "band_" ? "band_tile + " : "", of, "rows - tile_base * ", of, "tiles;"));
    if (!several_images_) return;
    text_.open("const auto row_of = [=](int64_t tile)");
    text_.line("const int64_t image = tile / image_tiles, t = tile - image * image_tiles;");
    text_.line("return image * image_rows + t * tile_base + (t < longer_tiles ? t : longer_tiles);");
    text_.close(";");
  }

  void open_tiles() {
    text_.line("int64_t first_row = block_row;");
    text_.open("for (int64_t t = first_tile; t < end_tile; ++t)");
    text_.line(cat("const int64_t tile_rows = tile_base + (", several_images_ ? "t % image_tiles" : "t",
                   " < longer_tiles);"));
    rows_.print_tile();
  }

  void print_rows_of_bytes() {
    open_tiles();
    text_.open("for (int64_t i = 0; i < tile_rows; ++i)");
    text_.line("const int64_t row = first_row + i - block_row;");
    columns_.bytes()->print_bytes_of_row();
    text_.close();
    text_.line("first_row += tile_rows;");
    text_.close();
  }

  void print_tiles_of_bytes() {
    columns_.bytes()->print_panel();
    columns_.bytes()->print_byte_products();
    open_tiles();
    text_.line(cat(f_.element(), "* const tile = sums;"));
    text_.line("products(tile, first_row - block_row, tile_rows);");
    epilogue_.print(rows_);
    text_.line("first_row += tile_rows;");
    text_.close();
  }

  // A single row (a decoder's step) uses every weight once, so copying weights to scratch gains nothing.
  void print_one_row() {
    text_.open("if (block_rows == 1)");
    text_.line("const int64_t t = first_tile, first_row = block_row, tile_rows = 1;");
    text_.line(cat(f_.element(), "* const tile = sums;"));
    rows_.print_tile();
    columns_.print_row();
    epilogue_.print(rows_);
    text_.line("(void)t;");
    text_.line("continue;");
    text_.close();
  }

  // A convolution is split between segments.
  bool by_segments() const { return f_.plan.a != kernels::GemmPlan::A::kPack && !f_.segments.empty(); }
  sym::Expr cut() const {
    return by_segments() ? extent_of(f_.segments) : sym::ceildiv(extent_of(f_.reduced), f_.step());
  }

  bool in_pieces() const { return sums_in_scratch() || short_chunk() > 0; }

  bool sums_in_scratch() const { return sums_bytes(f_).has_value(); }

  // Maximum k of a piece if the rows are one task of few tiles; 0: no split (kernels::short_chunk()). Tasks
  // after the first of a panel find it in L2. Schedules for a known number of rows have a chunk for that.
  int64_t short_chunk() const {
    if (interleaves() || !columns_.continuous()) return 0;
    const sym::Expr rows = extent_of(f_.rows);
    const sym::Interval range = f_.facts.bounds(rows);
    if (sym::as_const(rows) || (range.has_lo() && range.lo > kFewTiles * f_.plan.kernel->rows)) return 0;
    const auto k = sym::as_const(extent_of(f_.reduced));
    const auto panels = sym::as_const(extent_of(f_.batch) * extent_of(f_.columns));
    return k ? kernels::short_chunk(f_.plan, *k, panels.value_or(std::numeric_limits<int64_t>::max() / *k),
                                    text_.target())
             : 0;
  }

  void print_pieces() {
    if (!in_pieces()) return;
    const std::string k = text_.size(extent_of(f_.reduced)), parts = text_.size(cut());
    const auto pieces = [&](int64_t chunk) { return cat("(", k, " + ", chunk - 1, ") / ", chunk); };
    std::string wanted = sums_in_scratch() ? pieces(f_.plan.chunk) : "1";
    if (const int64_t chunk = short_chunk(); chunk > 0) {
      const std::string of_task = several_bands_ ? "tiles / bands" : "tiles";
      wanted = cat("(blocks == 1 && 1 < ", of_task, " && ", of_task, " <= ", kFewTiles,
                   " && rows <= ", kFewRows, " * tiles ? ", pieces(chunk), " : ", wanted, ")");
    }
    text_.line(cat("const int64_t pieces = sd_max(1, sd_min(", parts, ", ", wanted, "));"));
  }

  // Calls the micro-kernel for each tile of the task; `piece` is the piece of k.
  void print_tiles(const std::string& piece) {
    const kernels::GemmKernel& kernel = *f_.plan.kernel;
    const bool packed = f_.plan.a == kernels::GemmPlan::A::kPack, pieces = in_pieces();
    std::string segments = text_.size(packed ? sym::Expr(1) : extent_of(f_.segments));
    std::string run = text_.size(sym::align_up(extent_of(packed ? f_.reduced : f_.run), f_.step()));
    std::string b = "b", a = "a_rows";
    if (pieces) {
      const std::string parts = text_.size(cut());
      text_.line(cat("const int64_t first = share(", parts, ", piece, pieces), live = share(", parts,
                     ", piece + 1, pieces) - first;"));
      text_.line(cat("const ", f_.b_element(), "* const b_first = b + first * b_stride * ",
                     by_segments() ? cat("(", run, " / ", f_.group(), ")") : cat(f_.step() / f_.group()),
                     ";"));
      b = "b_first";
      (by_segments() ? segments : run) = by_segments() ? "live" : cat("(live * ", f_.step(), ")");
    }
    print_ahead(piece, segments, run, b);
    if (interleaves()) print_rest();
    open_tiles();
    text_.line(cat(f_.element(), "* const tile = sums",
                   sums_in_scratch() ? cat(" + (t - first_tile) * ", tile_elements(f_))
                   : pieces          ? cat(" + (pieces > 1 ? t - first_tile : 0) * ", tile_elements(f_))
                   : interleaves()   ? cat(" + (t & 1) * ", tile_elements(f_))
                                     : std::string(),
                   ";"));
    if (pieces) {
      if (by_segments()) {
        a = cat("a_rows + first * ", kernel.rows);
      } else {
        text_.line(cat("const ", f_.a_element(), "* a_first[", kernel.rows, "];"));
        text_.line(cat("for (int64_t i = 0; i < ", kernel.rows, "; ++i) a_first[i] = a_rows[i] + first * ",
                       f_.step(), ";"));
        a = "a_first";
      }
    }
    if (rows_.skips_segments()) {
      if (pieces) {
        text_.line("const int64_t from = sd_max(first, live_first);");
        text_.line(
            "const int64_t count = sd_max(0, sd_min(first + live, live_first + live_segments) - from);");
        text_.line("const int64_t left_out = count > 0 ? from - first : 0;");
      } else {
        text_.line("const int64_t count = live_segments, left_out = live_first;");
      }
      segments = "count";
      a = cat(a, " + left_out * ", kernel.rows);
      b = cat(b, " + left_out * b_stride * (", run, " / ", f_.group(), ")");
    }
    if (pieces) text_.open("if (piece + 1 == pieces)");
    epilogue_.print_ahead(rows_);
    if (pieces) text_.close();
    f_.print_shape();
    const Sum sum{segments, run, a, b, pieces ? "piece > 0" : "0", "ahead"};
    if (interleaves()) {
      text_.line("int64_t next = 0;");
      text_.line(cat("if (tile_rows == ", kernel.rows, ") next = ", kNamespace, "::tile_of<", kernel.rows,
                     ">(", arguments(sum),
                     ", left, [=](int64_t i) __attribute__((always_inline)) { rest(i, done, ",
                     "done_row); });"));
      text_.line("finish(next, left, done, done_row);");
      text_.line(cat("if (tile_rows != ", kernel.rows, ") ", call(sum)));
    } else if (is_long_sum()) {
      print_blocks(sum);
    } else {
      text_.line(call(sum));
    }
    text_.line("ahead += lines * steps * 64;");
    if (pieces) text_.open("if (piece + 1 == pieces)");
    if (interleaves())
      text_.line("left = tile_rows, done = tile, done_row = first_row;");
    else
      epilogue_.print(rows_);
    if (pieces) text_.close();
    text_.line("first_row += tile_rows;");
    text_.close();
    if (interleaves()) text_.line("finish(0, left, done, done_row);");
  }

  // What a call of the micro-kernel sums, as C expressions.
  struct Sum {
    std::string segments, run, a, b, accumulate, ahead;
  };
  static std::string arguments(const Sum& sum) {
    return cat(sum.segments, ", ", sum.run, ", ", sum.a, ", ", sum.b, ", b_stride, tile, ", sum.accumulate,
               ", ", sum.ahead, ", lines");
  }
  std::string call(const Sum& sum) const { return cat(multiply_, "(tile_rows, ", arguments(sum), ");"); }

  bool is_long_sum() const {
    if (!is_float(f_.plan.kernel->dtype) || (f_.plan.chunk > 0 && f_.plan.chunk <= kLongestChain))
      return false;
    const sym::Interval k = f_.facts.bounds(extent_of(f_.reduced));
    return !k.has_hi() || k.hi > kLongestChain;
  }

  // Calls the micro-kernel for each block of the sum.
  void print_blocks(const Sum& sum) {
    const int rows = f_.plan.kernel->rows, group = f_.group();
    const auto ahead = [&](const std::string& steps) { return cat("ahead + ", steps, " * lines * 64"); };
    Sum block = sum;
    block.accumulate = cat(sum.accumulate, " || from > 0");
    if (by_segments()) {
      const std::string run = cat("(", sum.run, ")");
      text_.line(cat("const int64_t in_block = sd_max(1, ", kBlock * group, " / sd_max(1, ", run, "));"));
      text_.open(cat("for (int64_t from = 0; from == 0 || from < ", sum.segments, "; from += in_block)"));
      block.segments = cat("sd_min(in_block, ", sum.segments, " - from)");
      block.a = cat(sum.a, " + from * ", rows);
      block.b = cat(sum.b, " + from * (", run, " / ", group, ") * b_stride");
      block.ahead = ahead(cat("from * (", run, " / ", group * kernels::kGemmStep, ")"));
    } else {
      text_.open(
          cat("for (int64_t from = 0; from == 0 || from < ", sum.run, "; from += ", kBlock * group, ")"));
      text_.line(cat("const ", f_.a_element(), "* a_block[", rows, "];"));
      text_.line(cat("for (int64_t i = 0; i < ", rows, "; ++i) a_block[i] = ", sum.a, "[i] + from;"));
      block.run = cat("sd_min(", kBlock * group, ", ", sum.run, " - from)");
      block.a = "a_block";
      block.b = cat(sum.b, " + from / ", group, " * b_stride");
      block.ahead = ahead(cat("from / ", group * kernels::kGemmStep));
    }
    text_.line(call(block));
    text_.close();
  }

  // Declares the rest of the previous tile's epilogue: `left` rows.
  void print_rest() {
    const std::string given = cat("const ", f_.element(), "* tile, int64_t first_row");
    text_.line(cat("int64_t left = 0, done_row = 0;"));
    text_.line(cat("const ", f_.element(), "* done = sums;"));
    text_.open(cat("const auto rest = [=](int64_t i, ", given, ") __attribute__((always_inline))"));
    epilogue_.print_row(rows_, true);
    text_.close(";");
    text_.open(cat("const auto finish = [=](int64_t i, int64_t end, ", given, ") __attribute__((noinline))"));
    text_.line("for (; i < end; ++i) rest(i, tile, first_row);");
    text_.close(";");
  }

  // Prefetches the weights that the thread uses next while this piece's tiles run.
  void print_ahead(const std::string& piece, const std::string& segments, const std::string& run,
                   const std::string& b) {
    if (!columns_.continuous()) {
      text_.line("const int64_t steps = 0, lines = 0;");
      text_.line("const char* ahead = 0;");
      return;
    }
    // With fewer tiles the prefetches would be as many as the loads.
    constexpr int kLeastTiles = 2, kMostLines = 16;
    text_.line(cat("const int64_t steps = ", segments, " * ((", run, " + ",
                   kernels::kGemmStep * f_.group() - 1, ") / ", kernels::kGemmStep * f_.group(), ");"));
    text_.line(cat("const int64_t bytes = ", segments, " * ", run, " / ", f_.group(), " * b_stride * ",
                   f_.b_bytes(), ";"));
    text_.line(cat("const char* ahead = (const char*)", b, " + bytes;"));
    text_.line("int64_t asked = 0, lines = 0;");
    text_.open(cat("if (end_tile - first_tile >= ", kLeastTiles, ")"));
    // A batch point's last panel is followed by the next one's first, if b has batch dims.
    const bool follow =
        !f_.batch.empty() && std::all_of(f_.batch.begin(), f_.batch.end(),
                                         [&](const loop::Dim& dim) { return f_.b->vars.contains(dim.var); });
    const std::string more = "panel + 1 < panels", last = "block + 1 == blocks";
    const std::string another = f_.plan.rows_outer ? follow ? cat("(", more, " || ", last, ")") : more
                                : follow           ? last
                                                   : more;
    // Blocks that share a panel each ask for a part of the next one.
    const bool parts = !f_.plan.rows_outer && !follow;
    text_.open(cat("if (", in_pieces() ? cat(piece, " + 1 < pieces || ") : std::string(), "(task + ",
                   parts ? "blocks - block" : "1", " < end && ", another, "))"));
    text_.line("asked = bytes;");
    if (parts) {
      text_.open(
          cat("if (blocks > 1", in_pieces() ? cat(" && ", piece, " + 1 == pieces") : std::string(), ")"));
      text_.line("const int64_t skipped = share(bytes / 64, block, blocks);");
      text_.line("ahead += skipped * 64;");
      text_.line("asked = (share(bytes / 64, block + 1, blocks) - skipped) * 64;");
      text_.close();
    }
    text_.close(" else if (task + 1 == end && args->ahead) {"), text_.open("");
    text_.line("ahead = stridec_abi_panel_ahead(args->ahead, part);");
    text_.line(
        cat("if (ahead) asked = sd_min(args->ahead->panel_bytes, ", text_.target().l2_bytes / 4, ");"));
    text_.close(), text_.line("}");
    text_.line("const int64_t calls = sd_max(1, steps * (end_tile - first_tile));");
    text_.line(cat("lines = sd_min((asked / 64 + calls - 1) / calls, ", kMostLines, ");"));
    text_.close();
  }

  KernelText text_;
  ContractionFrame f_;
  ContractionEpilogue epilogue_;
  ContractionRows rows_;
  ContractionColumns columns_;
  bool several_images_ = false, several_bands_ = false;
  std::string multiply_;  // name of the micro-kernel
};

}  // namespace

Kernel emit_contraction(const loop::Program& program, const loop::Nest& nest, const CpuTarget& target) {
  return Emitter(program, nest, target).emit();
}

sym::Expr contraction_scratch(const loop::Program& program, const loop::Nest& nest) {
  const ContractionShape shape(program, nest, kernels::to_plan(nest.schedule));
  const RowsLayout rows(shape, EpilogueLayout(shape).wants_row_indices());
  const ColumnsLayout columns(shape, false);
  std::vector<sym::Expr> pieces = rows.scratch();
  const std::vector<sym::Expr> panels = columns.scratch();
  pieces.insert(pieces.end(), panels.begin(), panels.end());
  if (const auto sums = sums_bytes(shape)) pieces.push_back(*sums);
  return scratch_bytes(pieces);
}

}  // namespace stridec::codegen::cpu
