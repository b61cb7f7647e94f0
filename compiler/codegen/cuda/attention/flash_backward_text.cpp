#include "compiler/codegen/cuda/attention/flash_backward_text.h"

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_source.h"

namespace stridec::codegen::cuda {
namespace {

constexpr std::string_view kMachine = R"(#ifndef STRIDEC_EMULATE
static inline void copy_bulk(unsigned to, const void* from, int bytes, unsigned bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(to), "l"(from),
      "r"(bytes), "r"(bar) : "memory");
}
static inline void store_bulk(void* to, unsigned from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(to), "r"(from), "r"(bytes) : "memory");
}
static inline void add_bulk(void* to, unsigned from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" :: "l"(to), "r"(from), "r"(bytes)
      : "memory");
}
static inline void commit_bulk() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
static inline void wait_bulk_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
static inline void wait_bulk() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
static inline void fence_global() { asm volatile("fence.proxy.async;" ::: "memory"); }
static inline void wait_turn(const unsigned* at, unsigned turn) {
  unsigned now;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(at) : "memory");
  while (now != turn);
}
static inline void pass_turn(unsigned* at) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(at) : "memory"); }
template <int kCount> static inline void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(kCount)); }
template <int kCount> static inline void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(kCount)); }
static inline float2 shared_pair(unsigned at) {
  float2 r;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(at));
  return r;
}
static inline void store_four(unsigned to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
static inline void store_matrices(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}
// The thread index, opaque to the compiler, which would keep every address computed from it in a register.
static inline unsigned fresh_thread() {
  unsigned t = threadIdx.x;
  asm volatile("" : "+r"(t));
  return t;
}
// 2^(x * scale - shift), in place, since the compiler would use a new register and spill.
static inline void power(float& x, float scale, float shift) {
  asm volatile("fma.rn.f32 %0, %0, %1, %2;\nex2.approx.ftz.f32 %0, %0;" : "+f"(x) : "f"(scale), "f"(-shift));
}
#endif
)";

// The steps of a thread that multiplies, for kPart queries at once. `scores`, `keys` and `rows` are low
// words of descriptors.
constexpr std::string_view kSteps = R"(
static inline void issue_scores(float (&to)[kPart / 2], unsigned keys, unsigned rows) {
  products_begin();
  multiply_first_scores(to, descriptor(keys), descriptor(rows));
#pragma unroll
  for (int c = 1; c < kDepth / 16; c++)
    multiply_scores(to, descriptor(keys + c / 4 * (kKeys * 128 / 16) + c % 4 * 2),
                    descriptor(rows + c / 4 * (kRows * 128 / 16) + c % 4 * 2));
  products_commit();
}
static inline void issue_rows(float (&to)[kDepth / 2], const unsigned (&x)[kPart / 4], unsigned rows) {
  products_begin();
#pragma unroll
  for (int c = 0; c < kPart / 16; c++) multiply_rows(to, x + 4 * c, descriptor(rows + c * 128));
  products_commit();
}
static inline void issue_dq(float (&to)[32], unsigned scores, unsigned keys) {
  products_begin();
  multiply_first_dq(to, descriptor(scores), descriptor(keys));
#pragma unroll
  for (int c = 1; c < kKeys / 16; c++) multiply_dq(to, descriptor(scores + c * 128), descriptor(keys + c * 128));
  products_commit();
}
static inline void pack_all(unsigned (&to)[kPart / 4], const float (&x)[kPart / 2]) {
#pragma unroll
  for (int i = 0; i < kPart / 4; i++) to[i] = pack(x[2 * i], x[2 * i + 1]);
}
)";

constexpr std::string_view kOutput = R"(
// store(result, place, line, column, x, y) stores two neighbouring elements. If the result's bit in `wide` is set,
// pair(...) takes the operands of store and returns both elements as one word, and put(result, place, line,
// column, words) stores 8 columns, given as four words.
template <class Store, class Pair, class Put> struct Output {
  Store store;
  Pair pair;
  Put put;
  unsigned wide;
};
template <class Store, class Pair, class Put> Output(Store, Pair, Put, unsigned) -> Output<Store, Pair, Put>;

// Stores columns from `column` on. `sums` holds a thread's accumulators: two columns of every 8, in two lines. `half`
// selects the line. All threads of a warp call it; those of a line have the same `live`. They exchange their
// words, so that each stores 16 bytes at a time.
template <int kSums, class Out, class Place>
static inline void store_sums(const Out& out, int result, const Place& at, bool live, int line, int column, const float (&sums)[kSums], int half) {
  const int q = fresh_thread() & 3;
  if (!(out.wide >> result & 1)) {
    if (!live) return;
#pragma unroll
    for (int i = 0; i < kSums / 4; i++) out.store(result, at, line, column + i * 8 + q * 2, sums[4 * i + 2 * half], sums[4 * i + 2 * half + 1]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kSums / 4; i += 4) {
    unsigned w[4] = {0, 0, 0, 0};
    if (live)
#pragma unroll
      for (int j = 0; j < 4; j++)
        w[j] = out.pair(result, at, line, column + (i + j) * 8 + q * 2, sums[4 * (i + j) + 2 * half], sums[4 * (i + j) + 2 * half + 1]);
    const bool odd = q & 1, upper = q & 2;
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const unsigned other = __shfl_xor_sync(~0u, odd ? w[j] : w[j + 1], 1);
      (odd ? w[j] : w[j + 1]) = other;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const unsigned other = __shfl_xor_sync(~0u, upper ? w[j] : w[j + 2], 2);
      (upper ? w[j] : w[j + 2]) = other;
    }
    if (live) out.put(result, at, line, column + (i + q) * 8, uint4{w[0], w[1], w[2], w[3]});
  }
}
)";

// One product for `columns` columns. `first`: the sums are only outputs. `a_transposed`, `b_transposed`: the
// factor's rows are the depth. With `registers` the first factor is four registers.
std::string product(const std::string& name, int columns, const char* type, bool first, bool registers,
                    int a_transposed, int b_transposed) {
  const int sums = columns / 2, a = registers ? 4 : 1;
  const std::string a_operands =
      registers ? cat("{%", sums, ", %", sums + 1, ", %", sums + 2, ", %", sums + 3, "}") : cat("%", sums);
  return cat("static inline void ", name, "(float (&d)[", sums, "], ",
             registers ? "const unsigned* a" : "unsigned long a",
             ", unsigned long b) {\n  asm volatile(\"{\\n.reg .pred p;\\nsetp.", first ? "ne" : "eq",
             ".b32 p, 0, 0;\\nwgmma.mma_async.sync.aligned.m64n", columns, "k16.f32.", type, ".", type, " {",
             numbered("%", sums, ""), "}, ", a_operands, ", %", sums + a, ", p, 1, 1, ",
             registers ? "" : cat(a_transposed, ", "), b_transposed,
             ";\\n}\"\n      : ", numbered(first ? "\"=f\"(d[" : "\"+f\"(d[", sums, "])"),
             "\n      : ", registers ? numbered("\"r\"(a[", 4, "])") : "\"l\"(a)", ", \"l\"(b));\n}\n");
}

// Waits with the sums as operands, so that none of their uses moves above it.
std::string wait(const char* name, int sums) {
  return cat("template <int kLeft> static inline void ", name, "(float (&d)[", sums,
             "]) { asm volatile(\"wgmma.wait_group.sync.aligned %", sums,
             ";\" : ", numbered("\"+f\"(d[", sums, "])"), " : \"n\"(kLeft) : \"memory\"); }\n");
}

}  // namespace

std::string backward_numbers(DType dtype) {
  return cat(
      dtype == DType::kF16
          ? R"(static inline float half_of(unsigned short x) {
#ifdef STRIDEC_EMULATE
  return (float)__builtin_bit_cast(_Float16, x);
#else
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
#endif
}
)"
          : R"(static inline float half_of(unsigned short x) { return __builtin_bit_cast(float, (unsigned)x << 16); }
)",
      R"(static inline float low_of(unsigned pair) { return half_of((unsigned short)pair); }
static inline float high_of(unsigned pair) { return half_of((unsigned short)(pair >> 16)); }
)");
}

std::string backward_machine(int columns, int64_t depth, DType dtype) {
  const char* type = dtype == DType::kF16 ? "f16" : "bf16";
  const int width = static_cast<int>(depth);
  std::string out(kMachine);
  out += product("multiply_first_scores", columns, type, true, false, 0, 0);
  out += product("multiply_scores", columns, type, false, false, 0, 0);
  out += product("multiply_rows", width, type, false, true, 0, 1);
  out += product("multiply_first_dq", 64, type, true, false, 1, 1);
  out += product("multiply_dq", 64, type, false, false, 1, 1);
  out += wait("wait_scores", columns / 2) + wait("wait_rows", width / 2) + wait("wait_dq", 32);
  // What computes these values comes before what follows.
  out += cat("static inline void settle(float (&d)[", columns / 2,
             "]) { asm volatile(\"\" : ", numbered("\"+f\"(d[", columns / 2, "])"), " :: \"memory\"); }\n");
  // Volatile: it stays before the products that read the result.
  out +=
      cat("#ifndef STRIDEC_EMULATE\nstatic inline unsigned pack(float low, float high) { unsigned r; asm "
          "volatile(\"cvt.rn.",
          type, "x2.f32 %0, %2, %1;\" : \"=r\"(r) : \"f\"(low), \"f\"(high)); return r; }\n#endif\n");
  out +=
      R"(// Low word of a descriptor: the address, and from bit 16 on the distance between slabs of 64 columns, both in units of 16 bytes.
static inline unsigned tile_low(unsigned at, unsigned apart) { return (at & 0x3ffff) >> 4 | apart >> 4 << 16; }
)";
  return cat(out, kSteps, kOutput);
}

}  // namespace stridec::codegen::cuda
