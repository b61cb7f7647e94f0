#include "compiler/codegen/cuda/packed_weights/packed_weights_ring.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/common/vector_access.h"
#include "compiler/codegen/cuda/matrix/matrix.h"
#include "compiler/codegen/cuda/matrix/matrix_epilogue.h"
#include "compiler/codegen/cuda/matrix/matrix_side.h"
#include "compiler/codegen/cuda/matrix/matrix_wgmma.h"
#include "compiler/codegen/cuda/packed_weights/packed_weights_text.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::MatrixFamily;
using kernels::MatrixKernel;
using kernels::PackedLayout;
using kernels::PackedTile;
using sym::Expr;

constexpr int kBox = 64;      // k per box of rows: 128 bytes
constexpr int kLoader = 32;   // threads that load
constexpr int kSumRows = 32;  // most rows whose sums are in shared memory at a time
constexpr int kFewRows = 32;  // blocks with at most so many rows leave room for the next launch's

constexpr std::string_view kCopies = R"(
static inline void copy_bytes(unsigned to, const void* from, int bytes, unsigned bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
static inline unsigned scaled_pair(unsigned pair, unsigned scales) {
  unsigned d;
  asm("mul.rn.SD_TYPEx2 %0, %1, %2;" : "=r"(d) : "r"(pair), "r"(scales));
  return d;
}
static inline unsigned scaled_pair(unsigned pair, float scale) {
  const float low = sd_from_SD_TYPE((unsigned short)pair) * scale, high = sd_from_SD_TYPE((unsigned short)(pair >> 16)) * scale;
  unsigned d;
  asm("cvt.rn.SD_TYPEx2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
)";

// Multiplies weights in registers by rows in shared memory, along the depth.
std::string product_text(int rows, DType element) {
  const int count = rows / 2;
  std::string registers, operands;
  for (int i = 0; i < count; ++i) {
    registers += cat(i ? "," : "", "%", i);
    operands += cat(i ? ", " : "", "\"+f\"(d[", i, "])");
  }
  return cat(
      "static inline void multiply(float (&d)[", count,
      "], const unsigned* a, unsigned long b) {\n  asm volatile(\"{\\n.reg .pred p;\\nsetp.eq.u32 p, 0, "
      "0;\\nwgmma.mma_async.sync.aligned.m64n",
      rows, "k16.f32.", name(element), ".", name(element), " {", registers, "}, {%", count, ", %", count + 1,
      ", %", count + 2, ", %", count + 3, "}, %", count + 4, ", p, 1, 1, 0;\\n}\"\n      : ", operands,
      "\n      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b));\n}\n");
}

MatrixKernel kernel_of(const PackedTile& tile) {
  return {.name = kernels::kPackedProduct,
          .family = MatrixFamily::kWords,
          .element_bytes = 2,
          .rows = tile.rows,
          .columns = 64 * tile.panels,
          .depth = kBox,
          .warps_rows = 4,
          .warps_columns = tile.panels * tile.groups,
          .stages = tile.stages,
          .blocks_sm = 1};
}

kernels::MatrixPlan plan_of(const loop::Program& program, const loop::Nest& nest, const PackedTile& tile) {
  kernels::MatrixPlan plan = packed_plan(program, nest);
  plan.split = tile.split;
  return plan;
}

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const PackedTile& tile)
      : tile_(tile),
        kernel_(kernel_of(tile)),
        f_(program, nest, kernel_, plan_of(program, nest, tile), true),
        x_(f_, "a", true, true),
        epilogue_(f_, true),
        words_(words_of(
            program, nest, f_.contraction.reduce->body,
            kernels::to_layout(nest.schedule, extent_of(f_.columns).value(), extent_of(f_.depth).value()))),
        words_text_(f_.text, program, words_),
        text_(f_.text) {}

  std::optional<DeviceChoice> emit(const GpuTarget& target) {
    constexpr int64_t kNarrow = 0x7fff0000;  // row and column indices, with room for one more tile
    if (!x_.map()) return std::nullopt;
    std::vector<Expr> conditions = {x_.condition(), epilogue_.condition()};
    if (tile_.most < INT64_MAX) conditions.push_back(sym::le(extent_of(f_.rows), tile_.most));
    for (const Dims* dims : {&f_.rows, &f_.columns}) conditions.push_back(sym::le(extent_of(*dims), kNarrow));
    DeviceChoice choice;
    choice.condition = sym::simplify(sym::logical_and(conditions), f_.program.facts);
    if (choice.condition.is_const(0)) return std::nullopt;
    std::vector<loop::BufferId> aligned = epilogue_.aligned();
    aligned.push_back(*x_.buffer());
    for (loop::BufferId id : aligned)
      if (is_callers(f_.program, id)) choice.aligned.push_back(id);
    print(target);
    Geometry g;
    const Expr tiles =
        sym::ceildiv(extent_of(f_.rows), kernel_.rows) * sym::ceildiv(extent_of(f_.columns), kernel_.columns);
    g.grid[0] =
        split() > 1 ? tiles * split() : sym::min(tiles, target.multiprocessors * (few() ? 1 : beside()));
    g.threads = workers() + kLoader;
    g.blocks_sm = beside();
    g.cluster = static_cast<int>(split());
    g.dependent_launch = target.dependent_launch;
    g.shared_bytes = ring_bytes() + (split() > 1 ? 0 : sum_bytes());
    g.maps = {*x_.map()};
    choice.launches.push_back(finish(text_, std::move(g), declarations()));
    return choice;
  }

 private:
  bool few() const { return tile_.rows <= kFewRows; }
  // Blocks per multiprocessor that have registers: this launch's and, with few rows, the next one's.
  int beside() const { return tile_.rows <= 64 ? 2 : 1; }
  int workers() const { return 128 * tile_.panels * tile_.groups; }
  int64_t split() const { return tile_.split; }
  // A stage holds boxes of rows and words of 128 k; scales and zero points follow the ring.
  int64_t rows_bytes() const { return int64_t{2} * tile_.rows * 128; }
  int64_t panel_bytes() const { return int64_t{1024} * words_.layout.bits; }
  int64_t stage_bytes() const { return rows_bytes() + tile_.panels * panel_bytes(); }
  // Scales of 64 columns per stage.
  int64_t panel_scales() const {
    const PackedLayout& l = words_.layout;
    const int64_t groups = l.group() ? std::max<int64_t>(1, kernels::kPackedDepth / l.group()) : 1;
    return groups * 64 * l.blocks();
  }
  int64_t scale_bytes() const {
    return words_.scales ? panel_scales() * byte_size(words_text_.scale_dtype()) : 0;
  }
  int64_t zero_bytes() const { return words_.zeros ? panel_scales() : 0; }
  int64_t beside_bytes() const { return tile_.panels * (scale_bytes() + zero_bytes()); }
  int64_t ring_bytes() const { return tile_.stages * (stage_bytes() + beside_bytes()); }
  int sum_rows() const { return split() > 1 ? tile_.rows : std::min(tile_.rows, kSumRows); }
  int pitch() const { return kernel_.columns + kernels::kSumPadding; }
  int64_t sum_bytes() const { return int64_t{4} * sum_rows() * pitch(); }

  std::string declarations() const {
    return cat(memory_declarations(), barrier_declarations(), box_declarations(x_.map()->dims.size()),
               strip_declarations(), numbers_text(words_.layout, f_.a_element),
               replaced(std::string(kCopies), "SD_TYPE", name(f_.a_element)),
               product_text(tile_.rows, f_.a_element), split() > 1 ? cluster_declarations(DType::kF32) : "");
  }

  void print(const GpuTarget& target) {
    text_.use(cat("from.", name(f_.a_element)));
    const PackedLayout& l = words_.layout;
    const int64_t steps = l.chunks() * l.chunk() / kernels::kPackedDepth;
    text_.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text_.line(cat("__shared__ alignas(8) unsigned long bars[", 2 * tile_.stages, "];"));
    text_.line("const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;");
    print_ring_barriers(text_, tile_.stages, 1, 4 * tile_.panels);
    print_tile_counts(f_);
    text_.line(cat("const ", f_.index_type(), " tiles = row_tiles * column_tiles;"));
    if (split() > 1) text_.line(cat("const int rank = blockIdx.x % ", split(), ";"));
    const auto part = [&](const char* rank) { return cat(steps, " * ", rank, " / ", split()); };
    text_.line(split() > 1 ? cat("const int begin = ", part("rank"), ", end = ", part("(rank + 1)"), ";")
                           : cat("const int begin = 0, end = ", steps, ";"));
    // Persistent blocks share multiprocessors with the next launch's from the start. Blocks of a cluster end
    // one by one: the next launch starts when everything has been requested.
    if (target.dependent_launch && split() == 1) text_.line("launch_dependents();");
    text_.open(cat("if (warp >= ", workers() / 32, ")"));
    print_loader(target.dependent_launch);
    text_.close(" else {");
    print_worker(target.dependent_launch);
    text_.line("}");
    if (split() > 1) text_.line("cluster_sync();");
  }

  void open_tiles() {
    text_.open(cat("for (", f_.index_type(), " block = blockIdx.x / ", split(),
                   "; block < tiles; block += ", split() > 1 ? "tiles" : "gridDim.x", ")"));
    print_tile_place(f_, "block");
  }

  void print_loader(bool dependent) {
    const PackedLayout& l = words_.layout;
    text_.open(cat("if (threadIdx.x == ", workers(), ")"));
    text_.line("int slot = 0, ahead = 0;");
    text_.line("unsigned phase = 1;");
    text_.line("bool first = true;");
    open_tiles();
    text_.open("const auto load_weights = [&](int step, int to)");
    text_.line("const unsigned full = full_bars + to * 8;");
    text_.line(cat("barrier_expect(full, ", stage_bytes() + beside_bytes(), ");"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int i = 0; i < ", tile_.panels, "; ++i)"));
    const int64_t last = l.panels() - 1;
    text_.line("const int64_t wanted = first_column / 64 + i;");
    text_.line(tile_.panels > 1 && l.panels() % tile_.panels
                   ? cat("const int64_t panel = wanted < ", last, " ? wanted : ", last, ";")
                   : std::string("const int64_t panel = wanted;"));
    text_.line(cat("copy_bytes(ring + to * ", stage_bytes(), " + ", rows_bytes(), " + i * ", panel_bytes(),
                   ", (const unsigned*)", words_text_.words(), " + (panel * ", l.chunks() * 512, " + step * ",
                   panel_bytes() / 4, "), ", panel_bytes(), ", full);"));
    const int64_t group = l.group();
    const std::string at =
        cat("(panel * ", l.groups(), " + ",
            group == 0                      ? std::string("0")
            : group > kernels::kPackedDepth ? cat("step / ", group / kernels::kPackedDepth)
                                            : cat("step * ", kernels::kPackedDepth / group),
            ") * ", 64 * l.blocks());
    if (words_.scales)
      text_.line(cat("copy_bytes(ring + ", scales_at("to", "i"), ", ", words_text_.all_scales(), " + ", at,
                     ", ", scale_bytes(), ", full);"));
    if (words_.zeros)
      text_.line(cat("copy_bytes(ring + ", zeros_at("to", "i"), ", ", words_text_.all_zeros(), " + ", at,
                     ", ", zero_bytes(), ", full);"));
    text_.close();
    text_.close(";");
    text_.open("if (first)");
    text_.line("first = false;");
    text_.line(cat("for (; ahead < ", tile_.stages,
                   " && begin + ahead < end; ++ahead) load_weights(begin + ahead, ahead);"));
    if (dependent) text_.line("wait_predecessor();");
    text_.close();
    text_.open("for (int step = begin; step < end; ++step)");
    text_.open("if (ahead > 0)");
    text_.line("--ahead;");
    text_.close(" else {");
    text_.line("barrier_wait(empty_bars + slot * 8, phase);");
    text_.line("load_weights(step, slot);");
    text_.line("}");
    text_.line("const unsigned full = full_bars + slot * 8;");
    text_.line("#pragma unroll");
    text_.open("for (int half = 0; half < 2; ++half)");
    text_.line("const int64_t next = (int64_t)step * 2 + half;");
    text_.line(
        cat("const unsigned fill_tile = ring + slot * ", stage_bytes(), " + half * ", rows_bytes() / 2, ";"));
    x_.print_boxes("map0");
    text_.close();
    text_.open(cat("if (++slot == ", tile_.stages, ")"));
    text_.line("slot = 0;");
    text_.line("phase ^= 1;");
    text_.close();
    text_.close();
    text_.close();
    if (dependent && split() > 1) text_.line("launch_dependents();");
    text_.close();
    text_.line("__syncwarp();");
    if (split() > 1) text_.line("cluster_sync();");
  }

  std::string scales_at(const std::string& slot, const std::string& panel) const {
    return cat(tile_.stages * stage_bytes(), " + ", slot, " * ", beside_bytes(), " + (", panel, ") * ",
               scale_bytes());
  }
  std::string zeros_at(const std::string& slot, const std::string& panel) const {
    return cat(tile_.stages * stage_bytes(), " + ", slot, " * ", beside_bytes(), " + ",
               tile_.panels * scale_bytes(), " + (", panel, ") * ", zero_bytes());
  }

  // Extracts the numbers of MMA steps 4 * half .. 4 * half + 3 of a stage into the registers a[16].
  void print_half(int half) {
    const PackedLayout& l = words_.layout;
    const int64_t in_block = l.step ? std::min(l.step, l.chunk()) / 16 : l.products();
    for (int64_t product = 4 * half; product < 4 * half + 4;) {
      const int64_t chunk = product / l.products(), group = l.group() ? chunk * l.chunk() / l.group() : 0;
      text_.open("");
      text_.line("Chunk now;");
      text_.line(cat("now.words = sd_load<4>((const unsigned*)(stage + ", rows_bytes(), " + panel * ",
                     panel_bytes(), " + ", chunk * 2048, ") + threadIdx.x % 128 * 4);"));
      const auto of_lane = [&](const std::string& from, const std::string& type) {
        return cat("sd_load<", words_text_.pairs(), ">((const ", type, "*)(shared + ", from, ") + ",
                   group * 64 * l.blocks(), " + (threadIdx.x % 128 / 4) * ", words_text_.pairs(), ");");
      };
      if (words_.scales)
        text_.line("now.scales = " +
                   of_lane(scales_at("slot", "panel"), text_.storage_type(words_text_.scale_dtype())));
      if (words_.zeros) text_.line("now.zeros = " + of_lane(zeros_at("slot", "panel"), "unsigned char"));
      for (; product < 4 * half + 4 && product / l.products() == chunk; ++product) {
        const int64_t inside = product % l.products(), block = inside / in_block;
        text_.open("");
        text_.line("unsigned taken[4];");
        text_.line(cat("sd_take<", inside, ">(taken, now.words, ", words_text_.zeros("now", block), ");"));
        for (int i = 0; i < 4; ++i)
          text_.line(cat("a[", half, "][", product % 4 * 4 + i, "] = ", scaled(i, block), ";"));
        text_.close();
      }
      text_.close();
    }
  }

  std::string scaled(int i, int64_t block) const {
    const std::string taken = cat("taken[", i, "]");
    if (!words_.scales) return taken;
    const std::string stored = cat("now.scales.e[", 2 * block + i % 2, "]");
    if (words_text_.scale_dtype() == f_.a_element)
      return cat("scaled_pair(", taken, ", (unsigned)", stored, " * 0x10001u)");
    return cat("scaled_pair(", taken, ", ", words_text_.scale("now", block, i % 2), ")");
  }

  void print_worker(bool dependent) {
    const int groups = tile_.groups, stages = tile_.stages;
    words_text_.print_chunk_type();
    text_.line(
        cat("const int panel = warp / 4 % ", tile_.panels, ", group = warp / ", 4 * tile_.panels, ";"));
    if (dependent) text_.line("wait_predecessor();");
    text_.line("int64_t before = 0;  // stages of the tiles before this one");
    open_tiles();
    text_.line(cat("float acc[", tile_.rows / 2, "];"));
    text_.line("#pragma unroll");
    text_.line(cat("for (int i = 0; i < ", tile_.rows / 2, "; ++i) acc[i] = 0;"));
    text_.line("unsigned a[2][16];");
    text_.line("int last = -1;");
    text_.line(cat(
        "int64_t at = before",
        groups > 1 ? cat(" + (group + ", groups, " - (int)(before % ", groups, ")) % ", groups) : "", ";"));
    text_.line("before += end - begin;");
    text_.line(cat("int slot = (int)(at % ", stages, ");"));
    text_.line(cat("unsigned phase = (unsigned)(at / ", stages, ") & 1;"));
    text_.line("#pragma unroll 1");
    text_.open(cat("for (; at < before; at += ", groups, ")"));
    text_.line("barrier_wait(full_bars + slot * 8, phase);");
    text_.line(cat("const unsigned char* const stage = shared + slot * ", stage_bytes(), ";"));
    text_.line(cat("const unsigned rows = ring + slot * ", stage_bytes(), ";"));
    for (const int half : {0, 1}) {
      print_half(half);
      text_.line("products_begin();");
      text_.line("#pragma unroll");
      text_.line(cat("for (int k = 0; k < 4; ++k) multiply(acc, a[", half, "] + 4 * k, descriptor(((rows + ",
                     half * rows_bytes() / 2, " & 0x3ffff) >> 4 | 1 << 16) + k * 2));"));
      text_.line("products_commit();");
      text_.line("products_wait<1>();");
      if (half == 0) text_.line("if (last >= 0 && lane == 0) barrier_arrive(empty_bars + last * 8);");
    }
    text_.line("last = slot;");
    text_.line(cat("slot += ", groups, ";"));
    text_.open(cat("if (slot >= ", stages, ")"));
    text_.line(cat("slot -= ", stages, ";"));
    text_.line("phase ^= 1;");
    text_.close();
    text_.close();
    text_.line("products_wait<0>();");
    text_.line("products_ready(acc);");
    text_.line("if (last >= 0 && lane == 0) barrier_arrive(empty_bars + last * 8);");
    print_sums();
    text_.close();
  }

  // Combines sums in shared memory, for as many rows at a time as fit.
  void print_sums() {
    const int rows = sum_rows();
    text_.line(cat("float* const sums = (float*)(shared", split() > 1 ? "" : cat(" + ", ring_bytes()), ");"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int part = 0; part < ", tile_.rows / rows, "; ++part)"));
    for (int group = 0; group < tile_.groups; ++group) {
      text_.line(cat("named_sync(1, ", workers(), ");"));
      text_.open(cat("if (group == ", group, ")"));
      text_.line("#pragma unroll");
      text_.open(cat("for (int i = 0; i < ", rows / 2, "; ++i)"));
      text_.line(cat("float* const sum = sums + (i / 4 * 8 + lane % 4 * 2 + i % 2) * ", pitch(),
                     " + panel * 64 + warp % 4 * 16 + lane / 4 + i % 4 / 2 * 8;"));
      text_.line(cat("*sum = ", group ? "*sum + " : "", "acc[part * ", rows / 2, " + i];"));
      text_.close();
      text_.close();
    }
    const MatrixEpilogue::Part part{
        rows, kernel_.columns, cat("part * ", rows), "0", "(int)threadIdx.x", workers(), 4};
    epilogue_.print_loads(part);
    text_.line(split() > 1 ? std::string("cluster_sync();") : cat("named_sync(1, ", workers(), ");"));
    epilogue_.print(part);
    text_.close();
  }

  const PackedTile& tile_;
  const MatrixKernel kernel_;
  MatrixFrame f_;
  MatrixSide x_;
  MatrixEpilogue epilogue_;
  Words words_;
  PackedWeightsText words_text_;
  KernelText& text_;
};

}  // namespace

std::optional<DeviceChoice> emit_packed_weights_ring(const loop::Program& program, const loop::Nest& nest,
                                                     const GpuTarget& target, const PackedTile& tile) {
  return Emitter(program, nest, tile).emit(target);
}

}  // namespace stridec::codegen::cuda
