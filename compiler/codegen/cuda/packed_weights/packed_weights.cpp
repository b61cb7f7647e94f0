#include "compiler/codegen/cuda/packed_weights/packed_weights.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/prelude.h"
#include "compiler/codegen/cuda/common/vector_access.h"
#include "compiler/codegen/cuda/matrix/matrix.h"
#include "compiler/codegen/cuda/matrix/matrix_epilogue.h"
#include "compiler/codegen/cuda/packed_weights/packed_weights_ring.h"
#include "compiler/codegen/cuda/packed_weights/packed_weights_text.h"
#include "compiler/kernels/packed_weights.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::MatrixFamily;
using kernels::MatrixKernel;
using kernels::PackedLayout;
using sym::Expr;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kBatch = 2;               // most chunks of a warp per batch of loads; two batches are in flight
constexpr int kTaken = 104;             // registers of a thread for these and for rows; more would be spilled
constexpr int kBlocks = 2;              // per multiprocessor: a third leaves too few registers
constexpr int kRowTiles[] = {1, 2, 4};  // rows of a block, in units of eight
constexpr int kMostWideRowTiles = 2;    // for f32, which takes more registers

MatrixKernel kernel_of(DType element, int row_tiles) {
  return {.name = kernels::kPackedProduct,
          .family = MatrixFamily::kWords,
          .element_bytes = byte_size(element),
          .rows = 8 * row_tiles,
          .columns = 16,
          .depth = 16,
          .warps_rows = 1,
          .warps_columns = kWarps,
          .stages = 1,
          .blocks_sm = 1};
}

class Emitter {
 public:
  // `vectors`: runs of k of the other factor are loaded at once.
  Emitter(const loop::Program& program, const loop::Nest& nest, int row_tiles, bool vectors)
      : row_tiles_(row_tiles),
        vectors_(vectors),
        kernel_(kernel_of(packed_element(nest, packed_plan(program, nest)), row_tiles)),
        f_(program, nest, kernel_, packed_plan(program, nest), vectors),
        epilogue_(f_, vectors),
        words_(words_of(
            program, nest, f_.contraction.reduce->body,
            kernels::to_layout(nest.schedule, extent_of(f_.columns).value(), extent_of(f_.depth).value()))),
        text_(f_.text, program, words_) {
    for (const loop::Stmt* stmt : f_.a->slice)
      if (const auto* load = std::get_if<loop::Load>(&stmt->node)) row_ = &load->access;
    STRIDEC_CHECK(row_, nest.name);
  }

  // The condition for vectors; nothing if no sizes allow them.
  std::optional<Expr> condition() const {
    const int64_t run = words_.layout.run();
    if (words_.layout.depth % run) return std::nullopt;
    const auto contiguous = cuda::contiguous(f_, *row_, f_.depth.back(), run);
    if (!contiguous) return std::nullopt;
    std::vector<Expr> conditions = {*contiguous, epilogue_.condition()};
    for (const Dims* dims : {&f_.rows, &f_.columns}) conditions.push_back(sym::le(extent_of(*dims), kNarrow));
    return sym::simplify(sym::logical_and(conditions), f_.program.facts);
  }
  std::vector<loop::BufferId> aligned() const {
    std::vector<loop::BufferId> out;
    for (loop::BufferId id : epilogue_.aligned())
      if (is_callers(f_.program, id)) out.push_back(id);
    if (is_callers(f_.program, row_->buffer)) out.push_back(row_->buffer);
    return out;
  }
  Expr rows() const { return extent_of(f_.rows); }
  // Whether scales have this type, or there are none.
  bool scales_like(DType dtype) const { return !words_.scales || text_.scale_dtype() == dtype; }

  // Blocks are persistent: while a tile's sums are combined and stored, the first weights of the next one are
  // loaded.
  DeviceKernel emit(const GpuTarget& target) {
    const Expr row_tiles = sym::ceildiv(extent_of(f_.rows), kernel_.rows),
               tiles = row_tiles * words_.layout.tiles();
    KernelText& text = f_.text;
    const PackedLayout& l = words_.layout;
    const int64_t step = batch() * kWarps, end = (l.chunks() + 2 * step - 1) / (2 * step) * 2 * step;
    const bool whole = l.chunks() == end;
    const std::string index = f_.index_type();
    text.line("const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;");
    text.line(
        cat("const ", index, " row_tiles = ", text.size(row_tiles), ", blocks = ", text.size(tiles), ";"));
    text_.print_loads(kWarps);
    text.line(cat("Chunk even[", batch(), "], odd[", batch(), "];"));
    text.open(cat("const auto load_batch = [&](Chunk* to, ", index, " column_tile, int first)"));
    text.line("#pragma unroll");
    text.open(cat("for (int j = 0; j < ", batch(), "; ++j)"));
    text.line(cat(whole ? "" : cat("if (first + j * ", kWarps, " < ", l.chunks(), ") "),
                  "load_chunk(to[j], column_tile, first, j);"));
    text.close();
    text.close(";");
    // The blocks of a tile of columns run concurrently: one loads its weights to L2 for all of them.
    text.line(cat(index, " column_tile = blockIdx.x / row_tiles, first_row = blockIdx.x % row_tiles * ",
                  kernel_.rows, ", first_column = column_tile * ", kernel_.columns, ";"));
    if (target.dependent_launch) wait("launch_dependents");
    text.line("load_batch(even, column_tile, warp);");
    // No other kernel writes the weights, but preceding kernels may write the rows.
    if (target.dependent_launch) wait("wait");
    const int pitch = kernel_.columns + kernels::kSumPadding;
    text.line(cat("alignas(16) __shared__ float all_parts[2][", kWarps, "][", kernel_.rows * pitch, "];"));
    text.line("int turn = 0;");
    text.open(cat("for (", index, " block = blockIdx.x; block < blocks; turn ^= 1)"));
    print_rows();
    text.line(cat("float acc[", row_tiles_, "][4] = {};"));
    text.open("const auto multiply_batch = [&](const Chunk* now, int first)");
    text.line("#pragma unroll");
    text.open(cat("for (int j = 0; j < ", batch(), "; ++j)"));
    text.line(cat("const int chunk = first + j * ", kWarps, ";"));
    if (!whole) text.line(cat("if (chunk >= ", l.chunks(), ") break;"));
    print_chunk();
    text.close();
    text.close(";");
    text.line("block += gridDim.x;");
    text.line(cat("const ", index, " next_tile = (block < blocks ? block : block - gridDim.x) / row_tiles;"));
    text.line("#pragma unroll 1");
    text.open(cat("for (int first = warp; first < ", end, "; first += ", 2 * step, ")"));
    text.line(cat("load_batch(odd, column_tile, first + ", step, ");"));
    text.line("multiply_batch(even, first);");
    text.line(cat("const bool last = first + ", 2 * step, " >= ", end, ";"));
    text.line(
        cat("if (!last || block < blocks) load_batch(even, last ? next_tile : column_tile, last ? warp : "
            "first + ",
            2 * step, ");"));
    text.line(cat("multiply_batch(odd, first + ", step, ");"));
    text.close();
    print_sums();
    text.line(cat("column_tile = next_tile, first_row = block % row_tiles * ", kernel_.rows,
                  ", first_column = column_tile * ", kernel_.columns, ";"));
    text.close();
    Geometry g{.grid = {sym::min(tiles, target.multiprocessors * kBlocks), 1, 1},
               .threads = kThreads,
               .blocks_sm = kBlocks};
    g.dependent_launch = target.dependent_launch;
    return finish(
        text, std::move(g),
        cat(memory_if_device(), strip_declarations(), numbers_text(l, numbers_dtype(f_.a_element))));
  }

 private:
  static constexpr int64_t kNarrow = 0x7fff0000;

  bool pieces() const { return f_.a_element == DType::kF32; }
  int count() const { return pieces() ? 3 : 1; }

  // Device functions for the epilogue's memory accesses.
  static std::string memory_if_device() {
    return cat("#ifndef STRIDEC_EMULATE\n", memory_declarations(), R"(#else
template <int kBytes> static inline void move_wide(void* to, const void* from) { __builtin_memcpy(to, from, kBytes); }
#endif
)");
  }

  void wait(const char* what) {
    f_.text.line(cat("#ifndef STRIDEC_EMULATE\n  asm volatile(\"griddepcontrol.", what,
                     ";\" ::: \"memory\");\n#endif"));
  }

  // Declares pointers to the lane's rows.
  void print_rows() {
    KernelText& text = f_.text;
    const std::string type = text.storage_type(f_.program[row_->buffer].dtype);
    text.line(cat("const ", type, "* rows[", row_tiles_, "];"));
    text.line(cat("bool live[", row_tiles_, "];"));
    text.line("#pragma unroll");
    text.open(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
    text.line(
        cat("const ", f_.index_type(), " row = first_row + (", f_.index_type(), ")(8 * i + lane / 4);"));
    text.line(cat("live[i] = row < (", f_.index_type(), ")", text.size(extent_of(f_.rows)), ";"));
    Body body = f_.body();
    f_.print_indices(f_.rows, "(live[i] ? row : 0)", body);
    for (const loop::Dim& dim : f_.depth) body.set_index(dim.var, "0");
    text.line(cat("rows[i] = ", text.pointer(row_->buffer), " + ", body.offset(*row_), ";"));
    text.close();
  }

  // Declares the rows' fragments `b`, pairs of k, for the MMA steps of a span that begins at k.
  void print_fragments() {
    KernelText& text = f_.text;
    const int64_t run = words_.layout.run(), span = words_.layout.span(), depth = words_.layout.depth;
    text.line(cat("unsigned b[", row_tiles_, "][", count(), "][", span / 8, "];"));
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
    text.line("  #pragma unroll");
    text.open(cat("  for (int h = 0; h < ", span / (4 * run), "; ++h)"));
    const std::string type = pieces() ? "float" : "unsigned", words = cat(pieces() ? run : run / 2),
                      at = cat("k + ", 4 * run, " * h"),
                      inside = words_.layout.chunks() * words_.layout.chunk() == depth
                                   ? ""
                                   : cat(" && ", at, " < ", depth);
    text.line(cat("Vec<", type, ", ", words, "> x = {};"));
    if (vectors_) {
      text.line(
          cat("if (live[i]", inside, ") x = sd_load<", words, ">((const ", type, "*)(rows[i] + ", at, "));"));
    } else {
      text.line("#pragma unroll");
      text.line(cat("for (int e = 0; e < ", run, "; ++e) if (live[i] && ", at, " + e < ", depth, ") ",
                    pieces() ? cat("x.e[e] = rows[i][", at, " + e];")
                             : cat("x.e[e / 2] |= (unsigned)rows[i][", at, " + e] << e % 2 * 16;")));
    }
    text.line("#pragma unroll");
    text.open(cat("for (int e = 0; e < ", run / 2, "; ++e)"));
    const std::string pair = cat("h * ", run / 2, " + e");
    if (pieces()) {
      text.line("unsigned three[3];");
      text.line("sd_pieces_of(three, x.e[2 * e], x.e[2 * e + 1]);");
      text.line(cat("for (int p = 0; p < 3; ++p) b[i][p][", pair, "] = three[p];"));
    } else {
      text.line(cat("b[i][0][", pair, "] = x.e[e];"));
    }
    text.close();
    text.close();
  }

  void print_chunk() {
    KernelText& text = f_.text;
    const PackedLayout& l = words_.layout;
    const int64_t each = l.span() / 16, in_block = l.step ? std::min(l.step, l.chunk()) / 16 : l.products();
    text.line(cat("float sums[", row_tiles_, "][4];"));
    for (int64_t product = 0; product < l.products(); ++product) {
      const int64_t block = product / in_block;
      if (product % in_block == 0)
        text.line(cat("const sd_zeros_of zeros", block, " = ", text_.zeros("now[j]", block), ";"));
      if (product % each == 0) {
        text.open("");
        text.line(
            cat("const int k = chunk * ", l.chunk(), " + ", product * 16, " + lane % 4 * ", l.run(), ";"));
        print_fragments();
      }
      text.open("");
      text.line("unsigned a[4];");
      text.line(cat("sd_take<", product, ">(a, now[j].words, zeros", block, ");"));
      text.line("#pragma unroll");
      text.open(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
      for (int p = 0; p < count(); ++p) {
        const std::string pair = cat("b[i][", p, "][");
        text.line(cat(product % in_block == 0 && p == 0 ? "sd_mma_first" : "sd_mma", "(sums[i], a, ", pair,
                      product % each * 2, "], ", pair, product % each * 2 + 1, "]);"));
      }
      text.close();
      text.close();
      if (product % each == each - 1) text.close();
      if (product % in_block == in_block - 1) print_scaled(block);
    }
  }

  void print_scaled(int64_t block) {
    KernelText& text = f_.text;
    text.open("");
    for (const int high : {0, 1})
      text.line(cat("const float scale", high, " = ",
                    words_.scales ? text_.scale("now[j]", block, high) : std::string("1.0f"), ";"));
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
    text.line("  #pragma unroll");
    text.line("  for (int h = 0; h < 4; ++h) acc[i][h] += sums[i][h] * (h < 2 ? scale0 : scale1);");
    text.close();
  }

  // Registers of a thread for both batches of `batch` chunks each, and for the rows.
  int64_t taken(int batch) const {
    const int64_t row = 14 + 4 * count() + (pieces() ? 8 : 0);  // per span of 32
    return int64_t{2} * batch * text_.registers() + row_tiles_ * row;
  }
  int batch() const { return taken(kBatch) <= kTaken ? kBatch : 1; }

  // The next tile uses another buffer, since slow threads may still read this one.
  void print_sums() {
    KernelText& text = f_.text;
    const int pitch = kernel_.columns + kernels::kSumPadding;
    text.line("auto& parts = all_parts[turn];");
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
    text.line("  #pragma unroll");
    text.line(cat("  for (int h = 0; h < 4; ++h) parts[warp][(8 * i + lane % 4 * 2 + h % 2) * ", pitch,
                  " + lane / 4 + h / 2 * 8] = acc[i][h];"));
    text.line("__syncthreads();");
    text.line("float* const sums = parts[0];");
    text.open(cat("for (int at = thread; at < ", kernel_.rows * 16, "; at += ", kThreads, ")"));
    text.line(cat("const int place = at / 16 * ", pitch, " + at % 16;"));
    text.line("float sum = sums[place];");
    text.line("#pragma unroll");
    text.line(cat("for (int w = 1; w < ", kWarps, "; ++w) sum += parts[w][place];"));
    text.line("sums[place] = sum;");
    text.close();
    const MatrixEpilogue::Part tile{kernel_.rows, kernel_.columns, "0", "0", "thread", kThreads, 4};
    epilogue_.print_loads(tile);
    text.line("__syncthreads();");
    epilogue_.print(tile);
  }

  const int row_tiles_;
  const bool vectors_;
  const MatrixKernel kernel_;
  MatrixFrame f_;
  MatrixEpilogue epilogue_;
  Words words_;
  PackedWeightsText text_;
  const loop::Access* row_ = nullptr;
};

// A warp writes a chunk of 16 columns, in the runs of k that its lanes have.
DeviceNest emit_unpack(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  KernelText text(program, kCudaText);
  const auto& store = std::get<loop::Store>(nest.body.back().node);
  const loop::Buffer& to = program[store.access.buffer];
  const Words words =
      words_of(program, nest, nest.body,
               kernels::to_layout(nest.schedule, nest.dims[0].extent.value(), nest.dims[1].extent.value()));
  const PackedLayout& l = words.layout;
  const DType numbers = numbers_dtype(to.dtype);
  PackedWeightsText printed(text, program, words);
  const std::string type = text.storage_type(to.dtype), from = cat("sd_from_", name(numbers));
  text.use(cat("from.", name(numbers)));
  if (to.dtype != DType::kF32) text.use(cat("to.", name(to.dtype)));
  text.line("const int lane = threadIdx.x % 32;");
  text.line(cat("const int64_t number = blockIdx.x * (int64_t)", kWarps, " + threadIdx.x / 32;"));
  text.line(cat("if (number >= ", l.tiles() * l.chunks(), ") return;"));
  text.line(cat("const int64_t tile = number / ", l.chunks(), ", chunk = number % ", l.chunks(), ";"));
  printed.print_loads(kWarps);
  text.line("Chunk now;");
  text.line("load_chunk(now, tile, chunk, 0);");
  const int64_t in_block = l.step ? std::min(l.step, l.chunk()) / 16 : l.products(), each = l.span() / 16,
                run = l.run();
  for (int64_t first = 0; first < l.products(); first += each) {
    const int64_t block = first / in_block;
    text.open("");
    text.line(cat("unsigned a[", each, "][4];"));
    for (int64_t product = 0; product < each; ++product)
      text.line(cat("sd_take<", first + product, ">(a[", product, "], now.words, ",
                    printed.zeros("now", block), ");"));
    for (const int high : {0, 1}) {
      text.open("");
      text.line(cat("const float scale = ",
                    words.scales ? printed.scale("now", block, high) : std::string("1.0f"), ";"));
      text.line("#pragma unroll");
      text.open(cat("for (int h = 0; h < ", each * 4 / run, "; ++h)"));
      text.line(cat("Vec<", type, ", ", run, "> out;"));
      text.line("#pragma unroll");
      text.open(cat("for (int e = 0; e < ", run, "; ++e)"));
      text.line(cat("const int own = h * ", run, " + e;"));
      text.line(cat("const float value = ", from, "((unsigned short)(a[own / 4][own % 4 / 2 * 2 + ", high,
                    "] >> own % 2 * 16)) * scale;"));
      text.line(cat("out.e[e] = ",
                    to.dtype == DType::kF32 ? std::string("value") : cat("sd_to_", name(to.dtype), "(value)"),
                    ";"));
      text.close();
      text.line(cat("sd_store<", run, ">(", text.pointer(store.access.buffer), " + (tile * 16 + lane / 4 + ",
                    8 * high, ") * ", l.chunks() * l.chunk(), " + chunk * ", l.chunk(), " + ", first * 16,
                    " + h * ", 4 * run, " + lane % 4 * ", run, ", out);"));
      text.close();
      text.close();
    }
    text.close();
  }
  return only(finish(text,
                     {.grid = {sym::ceildiv(l.tiles() * l.chunks(), kWarps), 1, 1},
                      .threads = kThreads,
                      .waits = target.dependent_launch},
                     cat(strip_declarations(), numbers_text(l, numbers))));
}

// The layout in a GEMM's schedule.
PackedLayout layout_of(const loop::Nest& nest, const kernels::MatrixPlan& plan) {
  const auto extent = [&](const std::vector<Expr>& vars) {
    int64_t count = 1;
    for (const loop::Dim& dim : nest.dims)
      if (std::find(vars.begin(), vars.end(), dim.var) != vars.end()) count *= dim.extent.value();
    return count;
  };
  return kernels::to_layout(nest.schedule, extent(plan.columns),
                            loop::extent_of(kernels::match_contraction(nest)->reduce->dims).value());
}

}  // namespace

DeviceNest emit_packed_weights(const loop::Program& program, const loop::Nest& nest,
                               const GpuTarget& target) {
  if (nest.schedule.kernel == kernels::kPackedUnpack) return emit_unpack(program, nest, target);
  DeviceNest out;
  const kernels::MatrixPlan plan = packed_plan(program, nest);
  const DType element = packed_element(nest, plan);
  const std::vector<kernels::PackedTile> tiles =
      kernels::packed_tiles(layout_of(nest, plan), element, target);
  // Independent warps are faster for one row, if there are columns for few warp groups only, and for up to
  // eight rows if warp groups would have to round many f32 values.
  if (!tiles.empty()) {
    Emitter one(program, nest, 1, true);
    const bool rounds = !one.scales_like(element) && kernels::to_layout(nest.schedule, 1, 1).bits < 8;
    const int64_t most = rounds ? 8 : tiles[0].panels == 1 ? 1 : 0;
    if (const auto condition = one.condition(); condition && most > 0) {
      const Expr all = sym::simplify(sym::logical_and(*condition, sym::le(one.rows(), most)), program.facts);
      if (!all.is_const(0)) {
        out.choices.push_back({all, one.aligned(), {}});
        out.choices.back().launches.push_back(one.emit(target));
      }
    }
  }
  for (const kernels::PackedTile& tile : tiles) {
    auto choice = emit_packed_weights_ring(program, nest, target, tile);
    if (choice && !out.is_complete()) out.choices.push_back(std::move(*choice));
  }
  if (!tiles.empty() && !out.choices.empty()) {
    // For callers' rows at unaligned addresses.
    if (out.is_complete()) return out;
    out.choices.emplace_back();
    out.choices.back().launches.push_back(
        Emitter(program, nest, kRowTiles[std::size(kRowTiles) - 1], false).emit(target));
    return out;
  }
  const bool wide = element == DType::kF32;
  const int most = wide ? kMostWideRowTiles : kRowTiles[std::size(kRowTiles) - 1];
  for (const int row_tiles : kRowTiles) {
    if (row_tiles > most) break;
    Emitter emitter(program, nest, row_tiles, true);
    const auto condition = emitter.condition();
    if (!condition || out.is_complete()) break;
    const Expr fits = row_tiles == most ? Expr(1) : sym::le(emitter.rows(), 8 * row_tiles);
    const Expr all = sym::simplify(sym::logical_and(*condition, fits), program.facts);
    if (all.is_const(0)) continue;
    out.choices.push_back({all, emitter.aligned(), {}});
    out.choices.back().launches.push_back(emitter.emit(target));
  }
  if (!out.is_complete()) {
    // The fewest rows that suffice, if any do.
    int row_tiles = most;
    for (const int fewer : kRowTiles)
      if (fewer < row_tiles &&
          program.facts.holds(sym::le(Emitter(program, nest, fewer, false).rows(), 8 * fewer)))
        row_tiles = fewer;
    out.choices.emplace_back();
    out.choices.back().launches.push_back(Emitter(program, nest, row_tiles, false).emit(target));
  }
  return out;
}

}  // namespace stridec::codegen::cuda
