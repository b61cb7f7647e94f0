#include "compiler/codegen/cuda/matrix/matrix.h"

#include <algorithm>
#include <functional>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/matrix/matrix_epilogue.h"
#include "compiler/codegen/cuda/matrix/matrix_parts.h"
#include "compiler/codegen/cuda/matrix/matrix_rows.h"
#include "compiler/codegen/cuda/matrix/matrix_side.h"
#include "compiler/codegen/cuda/matrix/matrix_sliced.h"
#include "compiler/codegen/cuda/matrix/matrix_threads.h"
#include "compiler/codegen/cuda/matrix/matrix_wgmma.h"
#include "compiler/schedule/directives/schedule.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::MatrixFamily;
using kernels::MatrixKernel;
using sym::Expr;

// The order of a line's 16-byte chunks depends on the line, so that the same chunk of eight lines is in
// different banks. Each group of 128 bytes of a line (64 or 32 if a line is shorter) stays in place: copies
// to lines at other alignments, such as padded ones, lose 7 % of the memory bandwidth (H200).
constexpr std::string_view kSwizzle = R"(
template <int kBytes> static inline int turn_of(int line) {
  return kBytes % 128 == 0 ? line & 7 : kBytes % 64 == 0 ? line >> 1 & 3 : kBytes % 32 == 0 ? line >> 2 & 1 : 0;
}
template <int kBytes> static inline unsigned swizzled(int line, int at) {
  return line * kBytes + ((at >> 4 ^ turn_of<kBytes>(line)) << 4 | (at & 15));
}
// Moves the swizzled address of one of a line's first 32 bytes by `at` bytes, a multiple of 32. The tile is aligned to 128 bytes.
template <int kBytes> static inline unsigned swizzled_on(unsigned place, int at) {
  constexpr int kGroup = kBytes % 128 == 0 ? 128 : kBytes % 64 == 0 ? 64 : 32;
  return (place ^ (at & (kGroup - 1))) + (at & -kGroup);
}
)";

constexpr std::string_view kMemory = R"(
// Copies the first `bytes` of kBytes and zero-fills the rest.
template <int kBytes> static inline void copy_some(unsigned to, const void* from, unsigned bytes) {
  if (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" :: "r"(to), "l"(from), "r"(bytes), "n"(kBytes) : "memory");
}
template <int kBytes> static inline void copy_async(unsigned to, const void* from, bool live = true) {
  copy_some<kBytes>(to, from, live ? kBytes : 0);
}
// Programmatic dependent launch. After launch_dependents() the next kernel may start. After wait_predecessor() the previous
// kernel has ended and its writes are visible.
static inline void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
static inline void wait_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
static inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
static inline void wait_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
template <int kGroups> static inline void wait_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(kGroups) : "memory"); }
static inline void store_shared(unsigned to, unsigned short v) { asm volatile("st.shared.u16 [%0], %1;" :: "r"(to), "h"(v) : "memory"); }
static inline void store_shared(unsigned to, unsigned char v) { asm volatile("st.shared.u8 [%0], %1;" :: "r"(to), "h"((unsigned short)v) : "memory"); }
static inline void store_shared(unsigned to, signed char v) { store_shared(to, (unsigned char)v); }
static inline void store_shared(unsigned to, unsigned v) { asm volatile("st.shared.u32 [%0], %1;" :: "r"(to), "r"(v) : "memory"); }
static inline void store_shared(unsigned to, float v) { asm volatile("st.shared.f32 [%0], %1;" :: "r"(to), "f"(v) : "memory"); }
static inline void store_shared(unsigned to, double v) { asm volatile("st.shared.f64 [%0], %1;" :: "r"(to), "d"(v) : "memory"); }
static inline void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
static inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
template <int kBytes> static inline void move_wide(void* to, const void* from) {
  if (kBytes == 2) *(unsigned short*)to = *(const unsigned short*)from;
  if (kBytes == 4) *(unsigned*)to = *(const unsigned*)from;
  if (kBytes == 8) *(uint2*)to = *(const uint2*)from;
  for (int i = 0; i < kBytes / 16; ++i) ((uint4*)to)[i] = ((const uint4*)from)[i];
}
)";

constexpr std::string_view kMma = R"(
static inline void load_matrices(unsigned (&r)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
static inline void load_transposed(unsigned (&r)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
)";

constexpr int kInstructionBytes = 32;

// Every element type has this many bytes of the depth per instruction, in the same registers.
std::string mma_text(DType a, DType b, DType sum) {
  const std::string type = sum == DType::kI32 ? "int" : "float", kind = sum == DType::kI32 ? "+r" : "+f";
  return cat("static inline void multiply(", type,
             " (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {\n"
             "  asm volatile(\"mma.sync.aligned.m16n8k",
             kInstructionBytes / byte_size(a), ".row.col.", kernels::ptx_type(sum), ".", kernels::ptx_type(a),
             ".", kernels::ptx_type(b), ".", kernels::ptx_type(sum),
             " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\"\n      : \"", kind, "\"(d[0]), \"",
             kind, "\"(d[1]), \"", kind, "\"(d[2]), \"", kind,
             "\"(d[3])\n"
             "      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b0), \"r\"(b1));\n}\n");
}

class Emitter {
 public:
  // `engine`: TMA may copy both factors.
  Emitter(const loop::Program& program, const loop::Nest& nest, const MatrixKernel& kernel, bool vectors,
          bool engine)
      : f_(program, nest, kernel, kernels::to_matrix_plan(nest.schedule), vectors),
        a_(f_, "a", vectors || f_.prologue, engine || kernel.is_wgmma()),
        b_(f_, "b", vectors || f_.prologue, !f_.prologue && (engine || kernel.is_wgmma())),
        sliced_(f_, a_, b_),
        threads_(f_, a_, b_),
        epilogue_(f_, vectors) {
    if (!f_.prologue) return;
    STRIDEC_CHECK(a_.map() && a_.is_weight() && a_.condition().is_const(1) && b_.along_depth(), nest.name);
    rows_.emplace(f_, b_, vectors);
  }

  bool factors_are_vectors() const { return a_.vector() && b_.vector(); }
  bool factors_are_boxes() const { return a_.map() && b_.map(); }
  // Whether vectors are used at all; if not, the text equals the one for any sizes.
  bool has_vectors() const { return a_.vector() || b_.vector() || !epilogue_.aligned().empty(); }

  // `below`: the choice is for GEMMs with fewer output elements.
  DeviceChoice emit(const GpuTarget& target, bool last, std::optional<int64_t> below = {}) {
    DeviceChoice choice;
    if (!last) {
      std::vector<loop::BufferId> aligned = epilogue_.aligned();
      for (const MatrixSide* side : {&a_, &b_})
        if (side->buffer()) aligned.push_back(*side->buffer());
      if (rows_) aligned.insert(aligned.end(), rows_->aligned().begin(), rows_->aligned().end());
      for (loop::BufferId id : aligned)
        if (is_callers(f_.program, id)) choice.aligned.push_back(id);
      std::vector<Expr> conditions = {a_.condition(), b_.condition(), epilogue_.condition()};
      if (rows_) conditions.push_back(rows_->condition());
      if (below)
        conditions.push_back(
            sym::lt(extent_of(f_.batch) * extent_of(f_.rows) * extent_of(f_.columns), *below));
      for (const Dims* dims : {&f_.rows, &f_.columns, &f_.depth})
        conditions.push_back(sym::le(extent_of(*dims), kNarrow));
      choice.condition = sym::simplify(sym::logical_and(conditions), f_.program.facts);
    }
    f_.leaves_parts = f_.plan.split > 1 && !has_cluster(f_, target);
    f_.kernel.is_wgmma()
        ? print_wgmma(f_, a_, b_, epilogue_, rows_ ? &*rows_ : nullptr, target.dependent_launch)
        : print(target.dependent_launch);
    choice.launches.push_back(finish(f_.text, geometry(target, below), declarations()));
    return choice;
  }

 private:
  static constexpr int64_t kNarrow = 0x7fff0000;  // row indices, with room for one more tile

  bool tensor() const { return f_.kernel.is_tensor(); }
  bool sliced() const { return f_.kernel.is_sliced(); }
  bool boxes() const { return !tensor() && factors_are_boxes(); }

  Geometry geometry(const GpuTarget& target, std::optional<int64_t> below) const {
    Geometry g;
    const Expr tiles = extent_of(f_.batch) * sym::ceildiv(extent_of(f_.rows), f_.kernel.rows) *
                       sym::ceildiv(extent_of(f_.columns), f_.kernel.columns);
    g.grid[0] = tiles * f_.plan.split;
    // Warp groups process tile after tile, so that loads run ahead of the stores of sums.
    if (f_.kernel.is_wgmma() && f_.plan.split == 1)
      g.grid[0] = sym::min(tiles, target.multiprocessors * f_.kernel.blocks_sm);
    g.threads = f_.kernel.threads();
    // Single-element loads need registers for their addresses.
    g.blocks_sm =
        tensor() || factors_are_vectors() ? f_.kernel.blocks_sm : std::max(1, f_.kernel.blocks_sm * 3 / 4);
    g.cluster = f_.sharers();
    if (f_.leaves_parts) {
      // GEMMs that are too large for this choice need no workspace.
      const Expr needed =
          below
              ? sym::select(sym::lt(extent_of(f_.batch) * extent_of(f_.rows) * extent_of(f_.columns), *below),
                            tiles, 0)
              : tiles;
      g.workspace_bytes = part_bytes(f_, needed);
      g.counters = needed;
    }
    g.dependent_launch = target.dependent_launch;
    const Expr needed =
        tensor() || sliced() ? Expr(kernels::shared_bytes(f_.kernel, f_.plan.split)) : Expr(threads_.bytes());
    g.shared_bytes = tensor() ? needed : sym::max(needed, room(target, g.grid[0], g.blocks_sm));
    for (const MatrixSide* side : {&a_, &b_})
      if (side->map()) g.maps.push_back(*side->map());
    return g;
  }

  // Shared memory per block with which a multiprocessor holds exactly its share of the blocks. The next
  // launch's blocks already wait; if this launch left room for them, they would crowd on few multiprocessors.
  static Expr room(const GpuTarget& target, Expr blocks, int most) {
    constexpr int kFixed = 2 << 10;  // per block, for the driver and barriers
    const Expr share = sym::min(sym::max(sym::ceildiv(blocks, target.multiprocessors), 1), most);
    return sym::min(sym::floordiv(target.shared_bytes_sm, share * 1024) * 1024, target.shared_bytes) - kFixed;
  }

  std::string declarations() const {
    std::string out = memory_declarations();
    if (f_.kernel.family == MatrixFamily::kMma)
      out += mma_declarations(f_.a_element, f_.b_element, f_.contraction.dtype);
    if (f_.kernel.is_wgmma())
      out += wgmma_declarations(f_, a_, b_);
    else if (boxes())
      out += copy_declarations(a_, b_);
    if (f_.leaves_parts)
      out += arrive_declarations();
    else if (f_.plan.split > 1)
      out += f_.kernel.is_wgmma() ? exchange_declarations(f_.contraction.dtype)
                                  : cluster_declarations(f_.contraction.dtype);
    return out;
  }

  void print(bool dependent) {
    KernelText& text = f_.text;
    const MatrixKernel& k = f_.kernel;
    const std::string element = text.value_type(f_.contraction.dtype);
    const int64_t split = f_.plan.split;
    text.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text.line("const int thread = threadIdx.x;");
    if (boxes()) print_barriers();
    if (dependent) text.line("launch_dependents();");
    MatrixSide* early = nullptr;  // weights do not wait for the previous launch
    if (dependent && boxes() && sliced())
      for (MatrixSide* side : {&a_, &b_})
        if (side->is_weight()) early = side;
    if (dependent && !early) text.line("wait_predecessor();");
    print_tile_counts(f_);
    if (split > 1) text.line(cat("const int rank = blockIdx.x % ", split, ";"));
    text.line(cat("const ", f_.index_type(), " block = blockIdx.x", split > 1 ? cat(" / ", split) : "", ";"));
    print_tile_place(f_, "block");
    print_steps(f_);
    if (boxes()) {
      for (MatrixSide* side : {&a_, &b_})
        if (side->is_staged()) side->print_line();
    } else {
      a_.print_start();
      b_.print_start();
      text.line("int fill_slot = 0;");
    }
    text.line("const unsigned ring = (unsigned)__cvta_generic_to_shared(shared);");
    text.line("int slot = 0;");
    text.line("const int lane_id = thread % 32, warp = thread / 32;");
    text.line(cat("const int warp_row = warp / ", k.warps_columns, " * ", warp_rows(),
                  ", warp_column = warp % ", k.warps_columns, " * ", warp_columns(), ";"));
    print_registers();
    if (boxes()) {
      print_first_boxes(early);
      sliced() ? print_sliced_box_loop() : print_box_loop();
    } else {
      // The first iterations only fill the ring.
      text.open(cat("for (int64_t step = begin - ", k.stages - 1, "; step < end; ++step)"));
      text.line(cat("const int64_t next = step + ", k.stages - 1, ";"));
      text.line(cat("const unsigned fill_stage = ring + fill_slot * ", stage(), ";"));
      tensor() || sliced() ? print_ring_step() : print_simt_step();
      text.close();
      text.line("wait_copies<0>();");
    }
    text.line("__syncthreads();");
    text.line(cat(element, "* const sums = (", element, "*)shared;"));
    tensor() ? print_mma_sums() : sliced() ? sliced_.print_sums() : threads_.print_sums();
    if (f_.leaves_parts) {
      text.line("__syncthreads();");
      print_parts(f_);
    }
    const MatrixEpilogue::Part tile{k.rows, k.columns, "0", "0", "thread", k.workers(), 4};
    epilogue_.print_loads(tile);
    if (!f_.leaves_parts) text.line(split > 1 ? "cluster_sync();" : "__syncthreads();");
    epilogue_.print(tile);
    if (f_.sharers() > 1) text.line("cluster_sync();");
  }

  int stage() const { return a_.stage_bytes() + b_.stage_bytes(); }

  void print_issue() {
    f_.text.open("if (next < end)");
    print_both([](MatrixSide& side) { side.print_issue(); });
    f_.text.close();
    f_.text.line("commit_copies();");
  }

  void print_deposit() {
    f_.text.open("if (next < end)");
    print_both([](MatrixSide& side) { side.print_deposit(); });
    f_.text.line(cat("if (++fill_slot == ", f_.kernel.stages, ") fill_slot = 0;"));
    f_.text.close();
  }

  void print_both(const std::function<void(MatrixSide&)>& print) {
    for (MatrixSide* side : {&a_, &b_}) {
      f_.text.open("");
      f_.text.line(
          cat("const unsigned fill_tile = fill_stage", side == &b_ ? cat(" + ", a_.stage_bytes()) : "", ";"));
      print(*side);
      f_.text.close();
    }
  }

  int warp_rows() const { return f_.kernel.rows / f_.kernel.warps_rows; }
  int warp_columns() const { return f_.kernel.columns / f_.kernel.warps_columns; }

  void print_registers() {
    if (sliced()) return sliced_.print_registers();
    if (!tensor()) return threads_.print_registers();
    f_.text.line(cat(f_.text.value_type(f_.contraction.dtype), " acc[", warp_rows() / 16, "][",
                     warp_columns() / 8, "][4] = {};"));
  }

  // ---- tensor cores: a warp computes a part of the tile, in blocks of 16 x 8 sums ----

  // A step of tiles that are read directly from their stages.
  void print_ring_step() {
    KernelText& text = f_.text;
    text.line(cat("wait_copies<", f_.kernel.stages - 2, ">();"));
    text.line("__syncthreads();");
    print_issue();
    text.open("if (step >= begin)");
    if (tensor()) {
      text.line(cat("const unsigned a_tile = ring + slot * ", stage(), ", b_tile = a_tile + ",
                    a_.tile_bytes(), ";"));
      print_mma();
    } else {
      print_sliced();
    }
    text.line(cat("if (++slot == ", f_.kernel.stages, ") slot = 0;"));
    text.close();
    print_deposit();
  }

  void print_sliced() {
    f_.text.line(cat("const unsigned char *const a_lines = shared + slot * ", stage(),
                     ", *const b_lines = a_lines + ", a_.tile_bytes(), ";"));
    sliced_.print_step();
  }

  void print_mma() {
    KernelText& text = f_.text;
    const int blocks_m = warp_rows() / 16, blocks_n = warp_columns() / 16;
    text.line("#pragma unroll");
    const int deep = kInstructionBytes / f_.element_bytes(), half = deep / 2;  // in elements
    text.open(cat("for (int k = 0; k < ", f_.kernel.depth, "; k += ", deep, ")"));
    text.line(cat("unsigned a[", blocks_m, "][4], b[", blocks_n, "][4];"));
    text.line("#pragma unroll");
    text.line(cat(
        "for (int i = 0; i < ", blocks_m, "; ++i) ",
        a_.along_depth()
            ? cat("load_matrices(a[i], a_tile + ",
                  a_.place("warp_row + i * 16 + lane_id % 16", cat("k + lane_id / 16 * ", half)), ");")
            : cat("load_transposed(a[i], a_tile + ",
                  a_.place("k + lane_id % 8 + lane_id / 16 * 8", "warp_row + i * 16 + lane_id / 8 % 2 * 8"),
                  ");")));
    text.line("#pragma unroll");
    text.line(cat("for (int j = 0; j < ", blocks_n, "; ++j) ",
                  b_.along_depth() ? cat("load_matrices(b[j], b_tile + ",
                                         b_.place("warp_column + j * 16 + lane_id % 8 + lane_id / 16 * 8",
                                                  cat("k + lane_id / 8 % 2 * ", half)),
                                         ");")
                                   : cat("load_transposed(b[j], b_tile + ",
                                         b_.place("k + lane_id % 8 + lane_id / 8 % 2 * 8",
                                                  "warp_column + j * 16 + lane_id / 16 * 8"),
                                         ");")));
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", blocks_m, "; ++i)"));
    text.line("  #pragma unroll");
    text.line(cat("  for (int j = 0; j < ", 2 * blocks_n,
                  "; ++j) multiply(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);"));
    text.close();
  }

  void print_mma_sums() {
    KernelText& text = f_.text;
    const int pitch = f_.kernel.columns + kernels::kSumPadding;
    const char* const pair = f_.contraction.dtype == DType::kI32 ? "int2" : "float2";
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", warp_rows() / 16, "; ++i)"));
    text.line("  #pragma unroll");
    text.line(cat("  for (int j = 0; j < ", warp_columns() / 8, "; ++j)"));
    text.line("    #pragma unroll");
    text.line(cat("    for (int h = 0; h < 2; ++h) *(", pair,
                  "*)(sums + (warp_row + i * 16 + lane_id / 4 + h * 8) * ", pitch,
                  " + warp_column + j * 8 + lane_id % 4 * 2) = make_", pair,
                  "(acc[i][j][2 * h], acc[i][j][2 * h + 1]);"));
  }

  // ---- FMAs ----

  void print_advance(bool phase) {
    f_.text.open(cat("if (++slot == ", f_.kernel.stages, ")"));
    f_.text.line("slot = 0;");
    if (phase) f_.text.line("phase ^= 1;");
    f_.text.close();
    if (a_.is_staged() || b_.is_staged()) f_.text.line("turn ^= 1;");
  }

  void print_simt_step() {
    KernelText& text = f_.text;
    print_issue();
    text.open("if (step >= begin)");
    threads_.print_stage();
    print_advance(false);
    text.close();
    print_deposit();
    text.line(cat("wait_copies<", f_.kernel.stages - 2, ">();"));
    text.open("if (step >= begin - 1)");
    threads_.print_turns();
    text.close();
    text.line("__syncthreads();");
    text.open("if (step >= begin - 1)");
    threads_.print_next_stage();
    text.close();
  }

  void print_barriers() {
    KernelText& text = f_.text;
    text.line(cat("__shared__ alignas(8) unsigned long bars[", f_.kernel.stages, "];"));
    text.line("const unsigned full_bars = shared_address(bars);");
    text.open("if (thread == 0)");
    text.line(cat("for (int i = 0; i < ", f_.kernel.stages, "; ++i) barrier_init(full_bars + i * 8, 1);"));
    text.line("barriers_ready();");
    text.close();
    text.line("__syncthreads();");
  }

  int box_bytes() const {
    return f_.kernel.depth * (f_.kernel.rows + f_.kernel.columns) * f_.element_bytes();
  }

  // Copies the tiles of step `next` to the stage `at` (a C expression): both sides, only one, or (`later`)
  // the other one.
  void print_box_stage(const std::string& at, const MatrixSide* only = nullptr, bool later = false) {
    f_.text.line(
        cat("const unsigned fill_stage = ring + ", at, " * ", stage(), ", full = full_bars + ", at, " * 8;"));
    if (!later) f_.text.line(cat("barrier_expect(full, ", box_bytes(), ");"));
    print_both([&](MatrixSide& side) {
      if (!only || (&side == only) != later) side.print_boxes(&side == &a_ ? "map0" : "map1");
    });
  }

  // Fills the ring for the first time; the side `early` before the previous launch ends.
  void print_first_boxes(const MatrixSide* early) {
    KernelText& text = f_.text;
    text.line("unsigned phase = 0;");
    for (const bool later : {false, true}) {
      if (later && !early) break;
      if (later) text.line("wait_predecessor();");
      text.open("if (thread == 0)");
      text.open(cat("for (int i = 0; i < ", f_.kernel.stages, "; ++i)"));
      text.line("const int64_t next = begin + i;");
      text.open("if (next < end)");
      print_box_stage("i", early, later);
      text.close();
      text.close();
      text.close();
    }
  }

  void print_sliced_box_loop() {
    KernelText& text = f_.text;
    text.open("for (int64_t step = begin; step < end; ++step)");
    text.line("barrier_wait(full_bars + slot * 8, phase);");
    print_sliced();
    text.line("__syncthreads();");
    text.line(cat("const int64_t next = step + ", f_.kernel.stages, ";"));
    text.open("if (thread == 0 && next < end)");
    print_box_stage("slot");
    text.close();
    print_advance(true);
    text.close();
  }

  void print_box_loop() {
    KernelText& text = f_.text;
    const int stages = f_.kernel.stages;
    text.open("for (int64_t step = begin - 1; step < end; ++step)");
    text.line("const int done = slot;");
    text.open("if (step >= begin)");
    threads_.print_stage();
    print_advance(true);
    text.close();
    text.open("if (step + 1 < end)");
    text.line("barrier_wait(full_bars + slot * 8, phase);");
    threads_.print_turns();
    text.close();
    text.line("__syncthreads();");
    text.line(cat("const int64_t next = step + ", stages, ";"));
    text.open("if (thread == 0 && step >= begin && next < end)");
    print_box_stage("done");
    text.close();
    threads_.print_next_stage();
    text.close();
  }

  MatrixFrame f_;
  MatrixSide a_, b_;
  Sliced sliced_;
  ThreadTiles threads_;
  MatrixEpilogue epilogue_;
  std::optional<MatrixRows> rows_;
};

// The nest for the general tile, which is smaller than most tiles: as many blocks as the plan wants, with a
// smaller split.
loop::Nest as_general(const loop::Nest& nest, kernels::MatrixPlan plan, const MatrixKernel& general) {
  const int64_t more = int64_t{plan.kernel->rows} * plan.kernel->columns / (general.rows * general.columns);
  loop::Nest out = nest;
  plan.split = std::max<int64_t>(1, plan.split / std::max<int64_t>(1, more));
  out.schedule = kernels::to_schedule(plan);
  return out;
}

}  // namespace

std::string_view swizzle_declarations() { return kSwizzle; }

std::string memory_declarations() { return cat(kSwizzle, kMemory); }
std::string mma_declarations(DType a, DType b, DType sum) { return std::string(kMma) + mma_text(a, b, sum); }

// Elements that pass through registers use a small tile.
DeviceNest emit_matrix(const loop::Program& program, const loop::Nest& original, const GpuTarget& target) {
  const kernels::MatrixPlan plan = kernels::to_matrix_plan(original.schedule);
  const MatrixKernel& kernel = *plan.kernel;
  const loop::Nest nest = schedule::with_merged(program, original, plan.merges);
  const MatrixKernel& general = kernels::general_kernel(kernel);
  DeviceNest out;
  auto add = [&](const loop::Nest& from, const MatrixKernel& k, bool vectors, bool last,
                 std::optional<int64_t> below, auto&& wanted, bool engine = false) {
    Emitter emitter(program, from, k, vectors, engine);
    if (!wanted(emitter)) return false;
    DeviceChoice choice = emitter.emit(target, last, below);
    if (!choice.condition.is_const(0)) out.choices.push_back(std::move(choice));
    return true;
  };
  auto both_are_vectors = [](const Emitter& e) { return e.factors_are_vectors(); };
  auto both_are_boxes = [](const Emitter& e) { return e.factors_are_boxes(); };
  auto has_vectors = [](const Emitter& e) { return e.has_vectors(); };
  auto any = [](const Emitter&) { return true; };
  auto add_kernel = [&](const loop::Nest& from, const MatrixKernel& k, std::optional<int64_t> below) {
    return (!k.is_tensor() && target.tma && add(from, k, true, false, below, both_are_boxes, true)) ||
           add(from, k, true, false, below, both_are_vectors) ||
           (k.is_sliced() &&
            (add(from, k, true, false, below, has_vectors) || add(from, k, false, false, below, any)));
  };
  if (const auto prologue = kernels::match_row_prologue(nest)) {
    // Only one tile shape; if vectors do not fit, rows are loaded by single elements.
    const auto deep = sym::as_const(prologue->made().dims[0].extent);
    STRIDEC_CHECK(deep && plan.fewer.empty(), nest.name);
    const auto holding = kernels::holding_columns(kernel, *deep, plan.split, target);
    STRIDEC_CHECK(holding, nest.name);
    add(nest, *holding, true, false, {}, any);
    if (!out.is_complete()) add(nest, *holding, false, true, {}, any);
    return out;
  }
  for (const kernels::MatrixPlan::Fewer& fewer : plan.fewer) {
    loop::Nest other = nest;
    other.schedule = kernels::to_schedule(kernels::plan_of(plan, fewer));
    add_kernel(other, *fewer.kernel, fewer.below);
  }
  const bool has_own = add_kernel(nest, kernel, {});
  const loop::Nest smaller = as_general(nest, plan, general);
  if (!has_own) add(smaller, general, true, false, {}, has_vectors);
  if (!out.is_complete()) add(smaller, general, false, true, {}, any);
  return out;
}

}  // namespace stridec::codegen::cuda
