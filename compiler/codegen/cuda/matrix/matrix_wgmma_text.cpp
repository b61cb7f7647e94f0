#include "compiler/codegen/cuda/matrix/matrix_wgmma_text.h"

#include <set>

#include "compiler/base/text.h"

namespace stridec::codegen::cuda {
namespace {

constexpr std::string_view kBarriers = R"(
static inline void barrier_init(unsigned bar, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count)); }
static inline void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;"); }
static inline void barrier_wait(unsigned bar, unsigned parity) {
  int done;
  do asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  while (!done);
}
static inline void barrier_expect(unsigned bar, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory"); }
static inline void barrier_arrive(unsigned bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory"); }
// Arrives at the barrier when all asynchronous copies issued by this thread so far have completed.
static inline void barrier_arrive_copied(unsigned bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory"); }
static inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
static inline void named_arrive(int bar, int threads) { asm volatile("bar.arrive %0, %1;" :: "r"(bar), "r"(threads) : "memory"); }
static inline void named_sync(int bar, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(bar), "r"(threads) : "memory"); }
static inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kGroups> static inline void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(kGroups) : "memory"); }
// To be called after products_wait(). It keeps the compiler from moving uses of the accumulators before the wait, since it
// takes them as complete when the product is issued.
static inline void products_ready(float& sum) { asm volatile("" : "+f"(sum) :: "memory"); }
static inline void products_ready(int& sum) { asm volatile("" : "+r"(sum) :: "memory"); }
template <class T, int kSums> static inline void products_ready(T (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) products_ready(sums[i]);
}
// Descriptor of a tile with 128-byte swizzle; groups of 8 lines are 1024 bytes apart. Only the low word depends on the tile.
static inline unsigned long descriptor(unsigned low) {
  unsigned long d;
  asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low), "n"(64 | 1 << 30));
  return d;
}
)";

constexpr std::string_view kCluster = R"(
static inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Sums over the blocks of a cluster, in the order of their ranks.
template <int kBlocks, int kLanes> static inline void sum_peers(Sum* total, const Sum* at) {
  #pragma unroll
  for (int i = 0; i < kLanes; ++i) total[i] = 0;
  #pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    unsigned peer;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(shared_address(at)), "r"(block));
    if (kLanes == 1) {
      Sum v;
      asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(*(unsigned*)&v) : "r"(peer) : "memory");
      total[0] += v;
    } else {
      #pragma unroll
      for (int i = 0; i < kLanes; i += 4) {
        unsigned v[4];
        asm volatile("ld.shared::cluster.v4.u32 {%0,%1,%2,%3}, [%4];"
            : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(peer + i * 4) : "memory");
        #pragma unroll
        for (int j = 0; j < 4; ++j) total[i + j] += *(const Sum*)&v[j];
      }
    }
  }
}
)";

constexpr const char* kPrefetchMap =
    R"(static inline void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }
)";

// Blocks of a cluster add up their sums of a tile: each sends the others their lines, and its own lines are
// complete when its barrier has counted all bytes.
constexpr std::string_view kExchange = R"(
static inline void blocks_begin() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
static inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
static inline void give_sums(Sum* to, unsigned bar, int block, Sum a, Sum b) {
  unsigned peer, peers_bar;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(shared_address(to)), "r"(block));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peers_bar) : "r"(bar), "r"(block));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%2, %3}, [%1];"
      :: "r"(peer), "r"(peers_bar), "r"(*(const unsigned*)&a), "r"(*(const unsigned*)&b) : "memory");
}
)";
// Adds in the order of the blocks.
constexpr std::string_view kGiven = R"(
template <int kBlocks, int kLanes, int kApart> static inline void sum_given(Sum* total, const Sum* at) {
  #pragma unroll
  for (int i = 0; i < kLanes; ++i) total[i] = 0;
  #pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    #pragma unroll
    for (int i = 0; i < kLanes; ++i) total[i] += at[block * kApart + i];
}
)";

}  // namespace

std::string barrier_declarations() { return std::string(kBarriers); }

void print_ring_barriers(KernelText& text, int stages, int fillers, int readers) {
  text.line(
      cat("const unsigned ring = shared_address(shared), full_bars = shared_address(bars), empty_bars = "
          "full_bars + ",
          8 * stages, ";"));
  text.open("if (threadIdx.x == 0)");
  text.open(cat("for (int i = 0; i < ", stages, "; ++i)"));
  text.line(cat("barrier_init(full_bars + i * 8, ", fillers, ");"));
  text.line(cat("barrier_init(empty_bars + i * 8, ", readers, ");"));
  text.close();
  text.line("barriers_ready();");
  text.close();
  text.line("__syncthreads();");
}

namespace {

// A TMA copy of what a map has at the given number of coordinates; `mode` is "" or ".im2col", which also
// takes offsets.
std::string copy_declaration(const char* name, const char* mode, size_t coordinates, size_t offsets) {
  const size_t first = 3;  // operands: destination, map, barrier
  std::string parameters, at, beside, operands;
  for (size_t d = 0; d < coordinates; ++d) {
    parameters += cat(", int c", d);
    at += cat(d ? "," : "", "%", first + d);
    operands += cat(", \"r\"(c", d, ")");
  }
  for (size_t d = 0; d < offsets; ++d) {
    parameters += cat(", int o", d);
    beside += cat(d ? "," : ", {", "%", first + coordinates + d);
    operands += cat(", \"h\"((unsigned short)o", d, ")");
  }
  return cat("static inline void ", name, coordinates, "(unsigned to, const TensorMap* map, unsigned bar",
             parameters, ") {\n  asm volatile(\"cp.async.bulk.tensor.", coordinates,
             "d.shared::cluster.global", mode, ".mbarrier::complete_tx::bytes [%0], [%1, {", at, "}], [%2]",
             beside, offsets ? "}" : "", ";\" :: \"r\"(to), \"l\"(map), \"r\"(bar)", operands,
             " : \"memory\");\n}\n");
}

}  // namespace

std::string box_declarations(size_t dims) { return copy_declaration("copy_box", "", dims, 0); }

namespace {

// Copies of windows take one offset per spatial dim, that is, for all dims but channels and images.
std::string window_declarations(size_t dims) {
  return copy_declaration("copy_window", ".im2col", dims, dims - 2);
}

std::string product_text(int columns, DType sum, const MatrixSide& a, const MatrixSide& b) {
  const int count = columns / 2;
  const bool whole = sum == DType::kI32;
  std::string registers, operands;
  for (int i = 0; i < count; ++i) {
    registers += cat(i ? "," : "", "%", i);
    operands += cat(i ? ", " : "", whole ? "\"+r\"" : "\"+f\"", "(d[", i, "])");
  }
  // Operands: floats may be negated, and 16-bit floats may run along the rows.
  std::string turns = whole ? "" : ", 1, 1";
  if (byte_size(a.element()) == 2) turns += cat(", ", a.along_depth() ? 0 : 1, ", ", b.along_depth() ? 0 : 1);
  // Adds to the registers' values if `more` is not 0.
  return cat("static inline void multiply(", whole ? "int" : "float", " (&d)[", count,
             "], unsigned long a, unsigned long b, int more = 1) {\n",
             "  asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.u32 p, %", count + 2,
             ", 0;\\nwgmma.mma_async.sync.aligned.m64n", columns, "k", 32 / byte_size(a.element()), ".",
             kernels::ptx_type(sum), ".", kernels::ptx_type(a.element()), ".", kernels::ptx_type(b.element()),
             " {", registers, "}, %", count, ", %", count + 1, ", p", turns, ";\\n}\"\n      : ", operands,
             "\n      : \"l\"(a), \"l\"(b), \"r\"(more));\n}\n");
}

}  // namespace

std::string copy_declarations(const MatrixSide& a, const MatrixSide& b) {
  std::string out(kBarriers);
  std::set<size_t> boxes, windows;
  for (const MatrixSide* side : {&a, &b})
    if (side->map()) (side->is_windows() ? windows : boxes).insert(side->map()->dims.size());
  for (size_t count : boxes) out += box_declarations(count);
  for (size_t count : windows) out += window_declarations(count);
  return out;
}

std::string wgmma_declarations(const MatrixFrame& frame, const MatrixSide& a, const MatrixSide& b) {
  const char* const maps = a.map() || b.map() ? kPrefetchMap : "";
  return copy_declarations(a, b) + maps + product_text(frame.kernel.columns, frame.contraction.dtype, a, b);
}

std::string exchange_declarations(DType sum) {
  return cat("typedef ", sum == DType::kI32 ? "int" : "float", " Sum;", kExchange, kGiven);
}

std::string cluster_declarations(DType sum) {
  return cat("typedef ", sum == DType::kI32 ? "int" : "float", " Sum;", kCluster);
}

}  // namespace stridec::codegen::cuda
