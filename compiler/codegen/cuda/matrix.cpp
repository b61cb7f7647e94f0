#include "compiler/codegen/cuda/matrix.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/matrix_epilogue.h"
#include "compiler/codegen/cuda/matrix_side.h"
#include "compiler/codegen/cuda/matrix_wgmma.h"
#include "compiler/schedule/schedule.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::MatrixFamily;
using kernels::MatrixKernel;
using sym::Expr;

// A line of 128 bytes or more keeps its 16-byte chunks in an order that depends on the line, so that eight lines of a
// chunk lie in different banks.
constexpr std::string_view kMemory = R"(
template <int kBytes> static inline unsigned swizzled(int line, int at) {
  const int turn = kBytes >= 128 ? line & 7 : kBytes == 64 ? line >> 1 & 3 : kBytes == 32 ? line >> 2 & 1 : 0;
  return line * kBytes + ((at >> 4 ^ turn) << 4 | (at & 15));
}
// The first of kBytes; zeros behind them.
template <int kBytes> static inline void copy_some(unsigned to, const void* from, unsigned bytes) {
  if (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" :: "r"(to), "l"(from), "r"(bytes), "n"(kBytes) : "memory");
}
template <int kBytes> static inline void copy_async(unsigned to, const void* from, bool live) {
  copy_some<kBytes>(to, from, live ? kBytes : 0);
}
// Programmatic dependent launch: the next kernel may begin; the previous one has ended and its writes are seen.
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

// Every element type has so many bytes of the depth in an instruction, and the same bytes in the same registers.
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
  Emitter(const loop::Program& program, const loop::Nest& nest, const MatrixKernel& kernel, bool vectors)
      : f_(program, nest, kernel, kernels::to_matrix_plan(nest.schedule), vectors),
        a_(f_, "a", vectors),
        b_(f_, "b", vectors),
        epilogue_(f_, vectors) {}

  bool factors_are_vectors() const { return a_.vector() && b_.vector(); }
  // False: a text for any sizes says as much.
  bool has_vectors() const { return a_.vector() || b_.vector() || !epilogue_.aligned().empty(); }

  // `below`: the choice is for products of fewer elements.
  DeviceChoice emit(const GpuTarget& target, bool last, std::optional<int64_t> below = {}) {
    DeviceChoice choice;
    if (!last) {
      std::vector<loop::BufferId> aligned = epilogue_.aligned();
      for (const MatrixSide* side : {&a_, &b_})
        if (side->buffer()) aligned.push_back(*side->buffer());
      for (loop::BufferId id : aligned)
        if (is_callers(f_.program, id)) choice.aligned.push_back(id);
      std::vector<Expr> conditions = {a_.condition(), b_.condition(), epilogue_.condition()};
      if (below)
        conditions.push_back(
            sym::lt(extent_of(f_.batch) * extent_of(f_.rows) * extent_of(f_.columns), *below));
      for (const Dims* dims : {&f_.rows, &f_.columns, &f_.depth})
        conditions.push_back(sym::le(extent_of(*dims), kNarrow));
      choice.condition = sym::simplify(sym::logical_and(conditions), f_.program.facts);
    }
    f_.kernel.is_wgmma() ? print_wgmma(f_, a_, b_, epilogue_, target.dependent_launch)
                         : print(target.dependent_launch);
    choice.launches.push_back(finish(f_.text, geometry(target), declarations()));
    return choice;
  }

 private:
  static constexpr int64_t kNarrow = 0x7fff0000;  // numbers of rows with a tile to spare

  bool tensor() const { return f_.kernel.is_tensor(); }

  Geometry geometry(const GpuTarget& target) const {
    Geometry g;
    const Expr tiles = extent_of(f_.batch) * sym::ceildiv(extent_of(f_.rows), f_.kernel.rows) *
                       sym::ceildiv(extent_of(f_.columns), f_.kernel.columns);
    g.grid[0] = tiles * f_.plan.split;
    // Warp groups take tile after tile, so that loads run ahead of the sums' way to memory.
    if (f_.kernel.is_wgmma() && f_.plan.split == 1)
      g.grid[0] = sym::min(tiles, target.multiprocessors * f_.kernel.blocks_sm);
    g.threads = f_.kernel.threads();
    g.blocks_sm = f_.kernel.blocks_sm;
    g.cluster = static_cast<int>(f_.plan.split);
    g.dependent_launch = target.dependent_launch;
    g.shared_bytes = kernels::shared_bytes(f_.kernel, f_.plan.split);
    for (const MatrixSide* side : {&a_, &b_})
      if (side->map()) g.maps.push_back(*side->map());
    return g;
  }

  std::string declarations() const {
    std::string out = memory_declarations();
    if (f_.kernel.family == MatrixFamily::kMma)
      out += mma_declarations(f_.a_element, f_.b_element, f_.contraction.dtype);
    if (f_.kernel.is_wgmma()) out += wgmma_declarations(f_, a_, b_);
    if (f_.plan.split > 1) out += cluster_declarations(f_.contraction.dtype);
    return out;
  }

  void print(bool dependent) {
    KernelText& text = f_.text;
    const MatrixKernel& k = f_.kernel;
    const std::string element = text.value_type(f_.contraction.dtype);
    const int64_t split = f_.plan.split;
    text.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text.line("const int thread = threadIdx.x;");
    if (dependent) text.line("launch_dependents();");
    if (dependent) text.line("wait_predecessor();");
    print_tile_counts(f_);
    if (split > 1) text.line(cat("const int rank = blockIdx.x % ", split, ";"));
    text.line(cat("const ", f_.index_type(), " block = blockIdx.x", split > 1 ? cat(" / ", split) : "", ";"));
    print_tile_place(f_, "block");
    a_.print_start();
    b_.print_start();
    print_steps(f_);
    const int stage = a_.tile_bytes() + b_.tile_bytes();
    text.line("const unsigned ring = (unsigned)__cvta_generic_to_shared(shared);");
    text.line("int fill_slot = 0, slot = 0;");
    print_registers();
    // The first iterations fill the ring alone.
    text.open(cat("for (int64_t step = begin - ", k.stages - 1, "; step < end; ++step)"));
    text.line(cat("const int64_t next = step + ", k.stages - 1, ";"));
    text.line(cat("const unsigned fill_stage = ring + fill_slot * ", stage, ";"));
    text.line(cat("wait_copies<", k.stages - 2, ">();"));
    text.line("__syncthreads();");
    text.open("if (next < end)");
    print_both([](MatrixSide& side) { side.print_issue(); });
    text.close();
    text.line("commit_copies();");
    text.open("if (step >= begin)");
    text.line(
        cat("const unsigned a_tile = ring + slot * ", stage, ", b_tile = a_tile + ", a_.tile_bytes(), ";"));
    tensor() ? print_mma() : print_simt();
    text.line(cat("if (++slot == ", k.stages, ") slot = 0;"));
    text.close();
    text.open("if (next < end)");
    print_both([](MatrixSide& side) { side.print_deposit(); });
    text.line(cat("if (++fill_slot == ", k.stages, ") fill_slot = 0;"));
    text.close();
    text.close();
    text.line("wait_copies<0>();");
    text.line("__syncthreads();");
    text.line(cat(element, "* const sums = (", element, "*)shared;"));
    tensor() ? print_mma_sums() : print_simt_sums();
    const MatrixEpilogue::Part tile{k.rows, k.columns, "0", "0", "thread", k.workers(), 4};
    epilogue_.print_loads(tile);
    text.line(split > 1 ? "cluster_sync();" : "__syncthreads();");
    epilogue_.print(tile);
    if (split > 1) text.line("cluster_sync();");
  }

  void print_both(void (*print)(MatrixSide&)) {
    for (MatrixSide* side : {&a_, &b_}) {
      f_.text.open("");
      f_.text.line(
          cat("const unsigned fill_tile = fill_stage", side == &b_ ? cat(" + ", a_.tile_bytes()) : "", ";"));
      print(*side);
      f_.text.close();
    }
  }

  // ---- tensor cores: a warp has a part of the tile, in blocks of 16 x 8 sums ----

  int warp_rows() const { return f_.kernel.rows / f_.kernel.warps_rows; }
  int warp_columns() const { return f_.kernel.columns / f_.kernel.warps_columns; }

  void print_registers() {
    KernelText& text = f_.text;
    if (tensor()) {
      text.line("const int lane_id = thread % 32, warp = thread / 32;");
      text.line(cat("const int warp_row = warp / ", f_.kernel.warps_columns, " * ", warp_rows(),
                    ", warp_column = warp % ", f_.kernel.warps_columns, " * ", warp_columns(), ";"));
      text.line(cat(text.value_type(f_.contraction.dtype), " acc[", warp_rows() / 16, "][",
                    warp_columns() / 8, "][4] = {};"));
    } else {
      text.line("const int thread_row = thread / 16 * 4, thread_column = thread % 16 * 4;");
      text.line(cat(text.value_type(f_.contraction.dtype), " acc[", f_.kernel.rows / 16, "][",
                    f_.kernel.columns / 16, "] = {};"));
    }
  }

  void print_mma() {
    KernelText& text = f_.text;
    const int blocks_m = warp_rows() / 16, blocks_n = warp_columns() / 16;
    text.line("#pragma unroll");
    const int deep = kInstructionBytes / f_.element_bytes(), half = deep / 2;  // elements
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

  // ---- multiply-adds: thread (y, x) has the rows 4y.. and columns 4x.. of every 64 ----

  void print_simt() {
    KernelText& text = f_.text;
    const std::string type = text.value_type(f_.contraction.dtype);
    const int rows = f_.kernel.rows / 16, columns = f_.kernel.columns / 16;
    text.line(cat("const ", type, "* a_lines = (const ", type,
                  "*)(shared + (a_tile - ring)), *b_lines = (const ", type, "*)(shared + (b_tile - ring));"));
    text.line("#pragma unroll");
    text.open(cat("for (int k = 0; k < ", f_.kernel.depth, "; ++k)"));
    text.line(cat(type, " a[", rows, "], b[", columns, "];"));
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", rows, "; ++i) a[i] = a_lines[k * ",
                  f_.kernel.rows + kernels::kSimtPadding, " + thread_row + i % 4 + i / 4 * 64];"));
    text.line("#pragma unroll");
    text.line(cat("for (int j = 0; j < ", columns, "; ++j) b[j] = b_lines[k * ",
                  f_.kernel.columns + kernels::kSimtPadding, " + thread_column + j % 4 + j / 4 * 64];"));
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", rows, "; ++i)"));
    text.line("  #pragma unroll");
    text.line(cat("  for (int j = 0; j < ", columns, "; ++j) acc[i][j] = ",
                  f_.contraction.dtype == DType::kF64 ? "fma" : "fmaf", "(a[i], b[j], acc[i][j]);"));
    text.close();
  }

  void print_simt_sums() {
    KernelText& text = f_.text;
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", f_.kernel.rows / 16, "; ++i)"));
    text.line("  #pragma unroll");
    text.line(cat(
        "  for (int j = 0; j < ", f_.kernel.columns / 16, "; ++j) sums[(thread_row + i % 4 + i / 4 * 64) * ",
        f_.kernel.columns + kernels::kSumPadding, " + thread_column + j % 4 + j / 4 * 64] = acc[i][j];"));
  }

  MatrixFrame f_;
  MatrixSide a_, b_;
  MatrixEpilogue epilogue_;
};

}  // namespace

std::string memory_declarations() { return std::string(kMemory); }
std::string mma_declarations(DType a, DType b, DType sum) { return std::string(kMma) + mma_text(a, b, sum); }

// Elements that go through registers want a small tile.
DeviceNest emit_matrix(const loop::Program& program, const loop::Nest& original, const GpuTarget& target) {
  const kernels::MatrixPlan plan = kernels::to_matrix_plan(original.schedule);
  const MatrixKernel& kernel = *plan.kernel;
  const loop::Nest nest = schedule::with_merged(program, original, plan.merges);
  const MatrixKernel& general = kernels::general_kernel(kernel);
  DeviceNest out;
  auto add = [&](const loop::Nest& from, const MatrixKernel& k, bool vectors, bool last,
                 std::optional<int64_t> below, auto&& wanted) {
    Emitter emitter(program, from, k, vectors);
    if (!wanted(emitter)) return false;
    DeviceChoice choice = emitter.emit(target, last, below);
    if (!choice.condition.is_const(0)) out.choices.push_back(std::move(choice));
    return true;
  };
  auto both_are_vectors = [](const Emitter& e) { return e.factors_are_vectors(); };
  for (const kernels::MatrixPlan::Fewer& fewer : plan.fewer) {
    loop::Nest other = nest;
    other.schedule = kernels::to_schedule(kernels::plan_of(plan, fewer));
    add(other, *fewer.kernel, true, false, fewer.below, both_are_vectors);
  }
  if (!kernel.is_tensor() || !add(nest, kernel, true, false, {}, both_are_vectors))
    add(nest, general, true, false, {}, [](const Emitter& e) { return e.has_vectors(); });
  if (!out.is_complete()) add(nest, general, false, true, {}, [](const Emitter&) { return true; });
  return out;
}

}  // namespace stridec::codegen::cuda
