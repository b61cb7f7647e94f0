// Attention backward for Hopper (sm_90a), deterministic: every sum is made in a fixed order.
//   S = scale * Q K^T (+ bias), P = exp(S - L), dP = dO V^T, dS = P * (dP - delta)
//   dV = P^T dO, dK = scale * dS^T Q, dQ = scale * dS K
//   Q, O, dO, dQ: [B, H, Sq, D]; K, V, dK, dV: [B, H / group, Sk, D]; D is contiguous, the other strides are
//   multiples of 16 bytes.
//
// Three launches:
//   attention_backward_rows  delta = sum(dO * O) and L * log2(e) of each query row, padded to whole blocks;
//                            clears the counters.
//   attention_backward       Persistent. A tile is KEYS keys of one key head. A block walks over the query blocks
//                            of every query head of the group, keeps dK and dV in registers (which is the sum
//                            over the group), and adds its part of dQ to an f32 workspace when its turn comes.
//   attention_backward_dq    f32 workspace -> dQ.
//
// A block has two consumer warpgroups of 64 keys each, and a warpgroup of service warps: warp 0 takes tickets and
// loads by TMA, warps 1 and 2 add dQ by bulk reductions. Scores are computed transposed (keys are rows), so that
// P^T and dS^T are A operands from registers.
//
// dQ is summed by blocks of keys in ascending order; a counter for each block of queries says whose turn it is. A
// tile waits only for tiles of smaller tickets, which run or are done: there is no deadlock, whatever the number
// of multiprocessors. Query blocks are walked from the last to the first, so that causal tiles, longest first,
// follow each other one step apart.
//
// Parameters: D 64 or 128; CAUSAL 0 or 1; BIAS 0, 1 (of the factors' type) or 2 (f32); F16 0 (bf16) or 1.

#ifndef D
#define D 128
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef F16
#define F16 0
#endif
#ifndef BM  // queries a step
#define BM (D == 64 ? 128 : 64)
#endif
#define KEYS 128    // keys a block, 64 a consumer warpgroup
#ifndef PERSISTENT  // a block takes tickets until there are no more; 0: one tile a block
#define PERSISTENT 1
#endif
#define LATE_DQ (D == 64)  // which of the two orders of a step
#define Q_STAGES (LATE_DQ ? 2 : 3)

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

struct alignas(64) TensorMap {
  u64 x[16];
};

struct Args {
  int sq, sk;               // query and key lengths
  int heads, group;         // query heads per batch; query heads per key head
  int key_heads;            // key heads of all batches
  int q_tiles;              // ceil(sq / BM)
  int key_tiles;            // ceil(sk / KEYS)
  int section;              // key heads walked side by side
  int causal_off;           // key j is seen by query i when j <= i + causal_off
  float scale, scale_log2;  // scale_log2 = scale * log2(e)
  float* lse2;   // [batch * heads][q_tiles * BM]: L * log2(e); +inf in rows that see nothing or do not exist
  float* delta;  // the same shape
  float* dq;     // workspace [batch * heads][q_tiles][2][64 * 64], in the order of accumulators
  u32* turns;    // [batch * heads][q_tiles]: parts of dQ added so far
  u32* ticket;
  const void* bias;                           // [batch, head, query, key], keys contiguous
  long long bias_batch, bias_head, bias_row;  // strides in elements
};

// ---- barriers, TMA, descriptors --------------------------------------------------------------------------------------

__device__ __forceinline__ u32 smem_addr(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mb_init(u32 bar, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
#ifdef SPIN_LIMIT  // traps instead of waiting for ever: to look for deadlocks
#define SPUN(n) \
  if (n > SPIN_LIMIT) __trap()
__device__ __forceinline__ void mb_wait(u32 bar, u32 parity) {
  for (u32 done = 0, spins = 0; !done; spins++) {
    asm volatile(
        "{\n.reg .pred P;\nmbarrier.try_wait.parity.shared::cta.b64 P, [%1], %2;\nselp.u32 %0, 1, 0, P;\n}"
        : "=r"(done)
        : "r"(bar), "r"(parity)
        : "memory");
    SPUN(spins);
  }
}
#else
#define SPUN(n) (void)n
__device__ __forceinline__ void mb_wait(u32 bar, u32 parity) {
  asm volatile(
      "{\n.reg .pred P;\nW:\nmbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n@P bra D;\nbra "
      "W;\nD:\n}" ::"r"(bar),
      "r"(parity)
      : "memory");
}
#endif
__device__ __forceinline__ void mb_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mb_arrive(u32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Tensor maps are {64 of D, rows, D / 64, head, batch}: one copy fills [D / 64][rows][128 bytes], each row's 16-byte chunks xor row & 7.
__device__ __forceinline__ void tma_load(u32 dst, const TensorMap* map, u32 bar, int row, int head,
                                         int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %3, "
      "%5, %6}], [%2];" ::"r"(dst),
      "l"(map), "r"(bar), "r"(0), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap* map, u32 src, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %2, %4, %5}], [%1];" ::"l"(map),
      "r"(src), "r"(0), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
__device__ __forceinline__ void bulk_load(u32 dst, const void* src, u32 bytes, u32 bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
      "l"(src), "r"(bytes), "r"(bar)
      : "memory");
}
__device__ __forceinline__ void bulk_store(void* dst, u32 src, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_add(void* dst, u32 src, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst),
               "r"(src), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ u32 load_acquire(const u32* p) {
  u32 x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ void add_release(u32* p, u32 x) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
// 128-byte swizzle, groups of 8 rows 1024 bytes apart. low: address / 16, and from bit 16 on the distance of 64-wide slabs / 16.
__device__ __forceinline__ u64 descriptor(u32 low) { return (u64)low | (u64)(1u << 30 | 64u) << 32; }
__device__ __forceinline__ u32 descriptor_low(u32 addr, u32 lead) {
  return (addr & 0x3FFFF) >> 4 | (lead >> 4) << 16;
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// ---- products: m64 nN k16, f32 sums in registers ----------------------------------------------------------------------

#if F16
#define TYPE "f16"
#else
#define TYPE "bf16"
#endif
#define SUMS_32(c)                                                                                        \
  c "f"(d[0]), c "f"(d[1]), c "f"(d[2]), c "f"(d[3]), c "f"(d[4]), c "f"(d[5]), c "f"(d[6]), c "f"(d[7]), \
      c "f"(d[8]), c "f"(d[9]), c "f"(d[10]), c "f"(d[11]), c "f"(d[12]), c "f"(d[13]), c "f"(d[14]),     \
      c "f"(d[15]), c "f"(d[16]), c "f"(d[17]), c "f"(d[18]), c "f"(d[19]), c "f"(d[20]), c "f"(d[21]),   \
      c "f"(d[22]), c "f"(d[23]), c "f"(d[24]), c "f"(d[25]), c "f"(d[26]), c "f"(d[27]), c "f"(d[28]),   \
      c "f"(d[29]), c "f"(d[30]), c "f"(d[31])
#define SUMS_64(c)                                                                                        \
  c "f"(d[0]), c "f"(d[1]), c "f"(d[2]), c "f"(d[3]), c "f"(d[4]), c "f"(d[5]), c "f"(d[6]), c "f"(d[7]), \
      c "f"(d[8]), c "f"(d[9]), c "f"(d[10]), c "f"(d[11]), c "f"(d[12]), c "f"(d[13]), c "f"(d[14]),     \
      c "f"(d[15]), c "f"(d[16]), c "f"(d[17]), c "f"(d[18]), c "f"(d[19]), c "f"(d[20]), c "f"(d[21]),   \
      c "f"(d[22]), c "f"(d[23]), c "f"(d[24]), c "f"(d[25]), c "f"(d[26]), c "f"(d[27]), c "f"(d[28]),   \
      c "f"(d[29]), c "f"(d[30]), c "f"(d[31]), c "f"(d[32]), c "f"(d[33]), c "f"(d[34]), c "f"(d[35]),   \
      c "f"(d[36]), c "f"(d[37]), c "f"(d[38]), c "f"(d[39]), c "f"(d[40]), c "f"(d[41]), c "f"(d[42]),   \
      c "f"(d[43]), c "f"(d[44]), c "f"(d[45]), c "f"(d[46]), c "f"(d[47]), c "f"(d[48]), c "f"(d[49]),   \
      c "f"(d[50]), c "f"(d[51]), c "f"(d[52]), c "f"(d[53]), c "f"(d[54]), c "f"(d[55]), c "f"(d[56]),   \
      c "f"(d[57]), c "f"(d[58]), c "f"(d[59]), c "f"(d[60]), c "f"(d[61]), c "f"(d[62]), c "f"(d[63])
#define TEXT_32                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TEXT_64                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#if BM == 64
#define SUMS_S SUMS_32
#define TEXT_S TEXT_32 "}, %32, %33, p"
#else
#define SUMS_S SUMS_64
#define TEXT_S TEXT_64 "}, %64, %65, p"
#endif
#if BM == 64
#define NAME_S "m64n64k16"
#else
#define NAME_S "m64n128k16"
#endif
// Scores: both factors lie along the depth. FIRST: no sum is there yet.
template <bool FIRST>
__device__ __forceinline__ void multiply_scores(float (&d)[BM / 2], u64 a, u64 b) {
#define MULTIPLY(c, keep)                                                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " keep ", 0;\nwgmma.mma_async.sync.aligned." NAME_S \
               ".f32." TYPE "." TYPE " {" TEXT_S ", 1, 1, 0, 0;\n}\n"                                \
               : SUMS_S(c)                                                                           \
               : "l"(a), "l"(b))
  if (FIRST)
    MULTIPLY("=", "0");
  else
    MULTIPLY("+", "1");
#undef MULTIPLY
}
#if D == 64
#define SUMS_D SUMS_32
#define TEXT_D TEXT_32 "}, {%32, %33, %34, %35}, %36"
#define NAME_D "m64n64k16"
#else
#define SUMS_D SUMS_64
#define TEXT_D TEXT_64 "}, {%64, %65, %66, %67}, %68"
#define NAME_D "m64n128k16"
#endif
// dV and dK: a from registers, b's rows are the depth.
__device__ __forceinline__ void multiply_rows(float (&d)[D / 2], const u32* a, u64 b) {
  asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned." NAME_D ".f32." TYPE
               "." TYPE " {" TEXT_D ", p, 1, 1, 1;\n}\n"
               : SUMS_D("+")
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// dQ: the rows of both factors are the depth.
template <bool FIRST>
__device__ __forceinline__ void multiply_dq(float (&d)[32], u64 a, u64 b) {
#define MULTIPLY(c, keep)                                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " keep                                       \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" TEXT_32 \
               "}, %32, %33, p, 1, 1, 1, 1;\n}\n"                                             \
               : SUMS_32(c)                                                                   \
               : "l"(a), "l"(b))
  if (FIRST)
    MULTIPLY("=", "0");
  else
    MULTIPLY("+", "1");
#undef MULTIPLY
}
// Waits with the sums as operands, so that no use of them moves above.
template <int LEFT>
__device__ __forceinline__ void wait_scores(float (&d)[BM / 2]) {
#if BM == 64
  asm volatile("wgmma.wait_group.sync.aligned %32;" : SUMS_S("+") : "n"(LEFT) : "memory");
#else
  asm volatile("wgmma.wait_group.sync.aligned %64;" : SUMS_S("+") : "n"(LEFT) : "memory");
#endif
}
// What makes these values stands before what follows.
__device__ __forceinline__ void settle(float (&d)[BM / 2]) { asm volatile("" : SUMS_S("+")::"memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_dq(float (&d)[32]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;" : SUMS_32("+") : "n"(LEFT) : "memory");
}
template <int LEFT>
__device__ __forceinline__ void wait_rows(float (&d)[D / 2]) {
#if D == 64
  asm volatile("wgmma.wait_group.sync.aligned %32;" : SUMS_D("+") : "n"(LEFT) : "memory");
#else
  asm volatile("wgmma.wait_group.sync.aligned %64;" : SUMS_D("+") : "n"(LEFT) : "memory");
#endif
}
template <int LEFT>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// ---- elements ---------------------------------------------------------------------------------------------------------

#define INF __int_as_float(0x7f800000)
#define LOG2E 1.4426950408889634f
__device__ __forceinline__ float ex2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// Volatile: it stays before the products that read it.
__device__ __forceinline__ u32 pack(float lo, float hi) {
  u32 r;
  asm volatile("cvt.rn." TYPE "x2.f32 %0, %2, %1;" : "=r"(r) : "f"(lo), "f"(hi));
  return r;
}
__device__ __forceinline__ float from16(u16 x) {
#if F16
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
#else
  return __int_as_float((u32)x << 16);
#endif
}
__device__ __forceinline__ float low16(u32 x) { return from16((u16)x); }
__device__ __forceinline__ float high16(u32 x) {
#if F16
  return from16((u16)(x >> 16));
#else
  return __int_as_float(x & 0xffff0000u);
#endif
}
__device__ __forceinline__ float2 shared_pair(u32 addr) {
  float2 r;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(addr));
  return r;
}

// ---- the blocks of queries that see a block of keys ---------------------------------------------------------------------

// The first block of queries that sees some of the keys from `key` on.
__device__ __forceinline__ int first_q_tile(const Args& a, int key) {
  if (!CAUSAL) return 0;
  const int row = key - a.causal_off;
  return row <= 0 ? 0 : min(row / BM, a.q_tiles);
}
// The blocks of keys that a block of queries sees, all from the first on.
__device__ __forceinline__ int seen_key_tiles(const Args& a, int q_tile) {
  if (!CAUSAL) return a.key_tiles;
  const int last = (q_tile + 1) * BM - 1 + a.causal_off;
  return last < 0 ? 0 : min(a.key_tiles, last / KEYS + 1);
}

#define Q_BYTES (BM * D * 2)
#define KV_BYTES (KEYS * D * 2)
#define DS_BYTES (KEYS * BM * 2)
#define DQ_BYTES (64 * 64 * 4)  // of a warpgroup
// shared memory, in bytes from its start
#define AT_K 0
#define AT_V (AT_K + KV_BYTES)
#define AT_Q (AT_V + KV_BYTES)
#define AT_DO (AT_Q + Q_STAGES * Q_BYTES)
#define AT_DS (AT_DO + 2 * Q_BYTES)
#define AT_DQ (AT_DS + (LATE_DQ ? 2 : 1) * DS_BYTES)
#define AT_LSE (AT_DQ + 4 * DQ_BYTES)
#define AT_DELTA (AT_LSE + Q_STAGES * BM * 4)
#define AT_BARS (AT_DELTA + 2 * BM * 4)
#define BARS (2 + 2 * Q_STAGES + 8 + 5)
#define SMEM (AT_BARS + BARS * 8 + 8)
#define NEXT(i, ph, n) \
  if (++i == n) {      \
    i = 0;             \
    ph ^= 1;           \
  }

struct Tile {
  int n, head, batch;          // block of keys, key head
  int m_begin, blocks, steps;  // first block of queries, how many, and of all heads of the group
};
// Within a section of heads, all first blocks of keys, then all second ones: who waits for a turn is a block later than who has it,
// and where CAUSAL makes blocks differ the longest come first.
__device__ __forceinline__ Tile locate(const Args& a, int ticket) {
  const int per = a.section * a.key_tiles, sec = ticket / per, rest = ticket - sec * per;
  const int width = min(a.section, a.key_heads - sec * a.section), heads = a.heads / a.group;
  Tile t;
  t.n = rest / width;
  const int key_head = sec * a.section + rest - t.n * width;
  t.batch = key_head / heads, t.head = key_head - t.batch * heads;
  t.m_begin = first_q_tile(a, t.n * KEYS), t.blocks = a.q_tiles - t.m_begin, t.steps = t.blocks * a.group;
  return t;
}

// For the host: bytes of shared memory, queries and keys of a block, threads.
extern "C" __device__ __constant__ int attention_backward_info[4] = {SMEM, BM, KEYS, 384};

extern "C" __global__ void __launch_bounds__(384, 1)
    attention_backward(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_do,
                       const __grid_constant__ TensorMap map_k, const __grid_constant__ TensorMap map_v,
                       const __grid_constant__ TensorMap map_dk, const __grid_constant__ TensorMap map_dv,
                       const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const u32 base = smem_addr(smem), bars = base + AT_BARS;
  const u32 k_full = bars, v_full = bars + 8, q_full = bars + 16, q_empty = q_full + 8 * Q_STAGES,
            do_full = q_empty + 8 * Q_STAGES, do_empty = do_full + 16, dq_full = do_empty + 16,
            dq_empty = dq_full + 16, kv_empty = dq_empty + 16, t_full = kv_empty + 8, t_empty = t_full + 16;
  volatile int* const tickets = (volatile int*)(smem + AT_BARS + BARS * 8);
  const int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    mb_init(k_full, 1), mb_init(v_full, 1);
    for (int i = 0; i < Q_STAGES; i++) mb_init(q_full + 8 * i, 1), mb_init(q_empty + 8 * i, 2);
    for (int i = 0; i < 2; i++) mb_init(do_full + 8 * i, 1), mb_init(do_empty + 8 * i, 2);
    for (int i = 0; i < 2; i++) mb_init(dq_full + 8 * i, 256), mb_init(dq_empty + 8 * i, 1);
    for (int i = 0; i < 2; i++) mb_init(t_full + 8 * i, 1), mb_init(t_empty + 8 * i, 4);
    mb_init(kv_empty, 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int tiles = a.key_tiles * a.key_heads;
  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 & 3, 0);
    if (warp == 0 && (threadIdx.x & 31) == 0) {  // ---- loads, and takes tickets
      int qi = 0, it = 0;
      u32 qp = 1;
#pragma unroll 1
      for (int round = 0;; round++) {
        const int ticket = atomicAdd(a.ticket, 1);
        mb_wait(t_empty + 8 * (round & 1), round >> 1 & 1 ^ 1);
        tickets[round & 1] = ticket;
        mb_arrive(t_full + 8 * (round & 1));
        if (ticket >= tiles) break;
        const Tile t = locate(a, ticket);
        mb_wait(kv_empty, round & 1 ^ 1);
        mb_expect(k_full, KV_BYTES);
        tma_load(base + AT_K, &map_k, k_full, t.n * KEYS, t.head, t.batch);
        if (t.steps == 0)
          mb_expect(v_full, KV_BYTES), tma_load(base + AT_V, &map_v, v_full, t.n * KEYS, t.head, t.batch);
        int m = a.q_tiles - 1, head = t.head * a.group;
        const float* lse = a.lse2 + ((long long)(t.batch * a.heads + head) * a.q_tiles + m) * BM;
#pragma unroll 1
        for (int step = 0; step < t.steps; step++, it++) {
          const u32 two = it & 1, parity = it >> 1 & 1 ^ 1;
          mb_wait(q_empty + 8 * qi, qp);
          mb_expect(q_full + 8 * qi, Q_BYTES + BM * 4);
          tma_load(base + AT_Q + qi * Q_BYTES, &map_q, q_full + 8 * qi, m * BM, head, t.batch);
          bulk_load(base + AT_LSE + qi * BM * 4, lse, BM * 4, q_full + 8 * qi);
          NEXT(qi, qp, Q_STAGES)
          if (step == 0)
            mb_expect(v_full, KV_BYTES), tma_load(base + AT_V, &map_v, v_full, t.n * KEYS, t.head, t.batch);
          mb_wait(do_empty + 8 * two, parity);
          mb_expect(do_full + 8 * two, Q_BYTES + BM * 4);
          tma_load(base + AT_DO + two * Q_BYTES, &map_do, do_full + 8 * two, m * BM, head, t.batch);
          bulk_load(base + AT_DELTA + two * BM * 4, lse + (a.delta - a.lse2), BM * 4, do_full + 8 * two);
          lse -= BM;
          if (m-- == t.m_begin) m = a.q_tiles - 1, head++, lse += (a.q_tiles + t.blocks) * BM;
        }
        if (!PERSISTENT) break;
      }
    } else if (warp < 3 &&
               (threadIdx.x & 31) == 0) {  // ---- adds dQ: warp 1 of even steps, warp 2 of odd ones
      const u32 two = warp - 1;
      int it = 0;
#pragma unroll 1
      for (int round = 0;; round++) {
        mb_wait(t_full + 8 * (round & 1), round >> 1 & 1);
        const int ticket = tickets[round & 1];
        mb_arrive(t_empty + 8 * (round & 1));
        if (ticket >= tiles) break;
        const Tile t = locate(a, ticket);
        int left = t.blocks;
        u32* turn = a.turns + (long long)(t.batch * a.heads + t.head * a.group + 1) * a.q_tiles - 1;
#pragma unroll 1
        for (int step = 0; step < t.steps; step++, it++) {
          if ((it & 1) == two) {
            mb_wait(dq_full + 8 * two, it >> 1 & 1);
            const u32 from = base + AT_DQ + two * 2 * DQ_BYTES;
            float* to = a.dq + (turn - a.turns) * 8192;
            if (t.n == 0) {
              bulk_store(to, from, 2 * DQ_BYTES);
            } else {
              for (u32 spins = 0; load_acquire(turn) != t.n; spins++) SPUN(spins);
              fence_async();
              bulk_add(to, from, 2 * DQ_BYTES);
            }
            bulk_commit();
            bulk_wait_read();
            mb_arrive(dq_empty + 8 * two);
            bulk_wait();
            fence_async();
            add_release(turn, 1);
          }
          turn--;
          if (--left == 0) left = t.blocks, turn += a.q_tiles + t.blocks;
        }
        if (!PERSISTENT) break;
      }
    }
    return;
  }

  // ---- consumers: a thread has, of each 8 queries, two of keys `key` and `key + 8`
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int warp = threadIdx.x / 32 & 3, lane = threadIdx.x & 31, other = wg ^ 1;
  const bool leader = (threadIdx.x & 127) == 0;
  const u32 k_rows = descriptor_low(base + AT_K + wg * 8192, 16),
            v_rows = descriptor_low(base + AT_V + wg * 8192, 16);
  const u32 q_low = descriptor_low(base + AT_Q, BM * 128), do_low = descriptor_low(base + AT_DO, BM * 128);
  // A warpgroup's part of dQ: D 128: its half of the columns; D 64: its half of the rows.
  const u32 k_depth = descriptor_low(base + AT_K + (D == 128 ? wg * KEYS * 128 : 0), 16);
  const u32 ds_low = descriptor_low(base + AT_DS + (D == 64 ? wg * KEYS * 128 : 0), 16);
  int qi = 0, it = 0;  // slot of Q; steps of all tiles
  u32 qp = 0;
#pragma unroll 1
  for (int round = 0;; round++) {
    mb_wait(t_full + 8 * (round & 1), round >> 1 & 1);
    const int ticket = __shfl_sync(~0u, tickets[round & 1],
                                   0);  // uniform: the tile's fields stay out of a thread's registers
    if (ticket >= tiles) break;
    const Tile tile = locate(a, ticket);
    const int key0 = tile.n * KEYS, m_begin = tile.m_begin, steps = tile.steps, batch = tile.batch;
    float dk[D / 2], dv[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) dk[i] = dv[i] = 0.f;
    mb_wait(k_full, round & 1);
    mb_wait(v_full, round & 1);

    if (steps > 0) {
      float s[BM / 2], dq[32];
      int m = a.q_tiles - 1, head = tile.head * a.group;

      // Thread numbers for addresses are made anew where they are used: the compiler would keep every address in a register.
      auto fresh_thread = [&] {
        u32 t = threadIdx.x;
        asm volatile("" : "+r"(t));
        return t;
      };
      auto issue_scores = [&](float(&to)[BM / 2], u32 keys, u32 rows) {
        wgmma_fence();
        multiply_scores<true>(to, descriptor(keys), descriptor(rows));
#pragma unroll
        for (int c = 1; c < D / 16; c++)
          multiply_scores<false>(to, descriptor(keys + c / 4 * (KEYS * 128 / 16) + c % 4 * 2),
                                 descriptor(rows + c / 4 * (BM * 128 / 16) + c % 4 * 2));
        wgmma_commit();
      };
      auto issue_rows = [&](float(&to)[D / 2], const u32(&x)[BM / 4], u32 rows) {
        wgmma_fence();
#pragma unroll
        for (int c = 0; c < BM / 16; c++) multiply_rows(to, x + 4 * c, descriptor(rows + c * 128));
        wgmma_commit();
      };
      auto issue_dq = [&](u32 slot) {
        const u32 low = ds_low + slot * (DS_BYTES / 16);
        wgmma_fence();
        multiply_dq<true>(dq, descriptor(low), descriptor(k_depth));
#pragma unroll
        for (int c = 1; c < KEYS / 16; c++)
          multiply_dq<false>(dq, descriptor(low + c * 128), descriptor(k_depth + c * 128));
        wgmma_commit();
      };
      // Turns scores into P, in place.
      auto exponentials = [&] {
        const u32 t = fresh_thread();
        const int key = key0 + t / 32 * 16 + (t & 31) / 4;
        const u32 lse = base + AT_LSE + qi * BM * 4 + (t & 3) * 8;
#pragma unroll
        for (int i = 0; i < BM / 8; i++) {
          const float2 l = shared_pair(lse + 32 * i);
#pragma unroll
          for (int e = 0; e < 4; e++) {
            float shift = e & 1 ? l.y : l.x;
#if BIAS
            const int r = m * BM + 2 * (t & 3) + 8 * i + (e & 1), k = key + e / 2 * 8;
            if (r < a.sq && k < a.sk) {
              const long long at = batch * a.bias_batch + head * a.bias_head + r * a.bias_row + k;
              shift -= LOG2E * (BIAS == 1 ? from16(((const u16*)a.bias)[at]) : ((const float*)a.bias)[at]);
            }
#endif
            // One text with its result in its operand: the compiler would take new registers, and spill.
            asm volatile("fma.rn.f32 %0, %0, %1, %2;\nex2.approx.ftz.f32 %0, %0;"
                         : "+f"(s[4 * i + e])
                         : "f"(a.scale_log2), "f"(-shift));
          }
        }
        // This branch keeps ptxas from moving the exponentials below the wait that follows.
        if (key0 + KEYS > a.sk || CAUSAL && m * BM + a.causal_off < key0 + wg * 64 + 63) {
          const int row = m * BM + 2 * (t & 3) + a.causal_off;
#pragma unroll
          for (int i = 0; i < BM / 2; i++) {
            const int k = key + (i & 2) * 4;
            if (k >= a.sk || CAUSAL && k > row + i / 4 * 8 + (i & 1)) s[i] = 0.f;
          }
        }
      };
      auto pack_all = [&](u32(&to)[BM / 4], const float(&x)[BM / 2]) {
#pragma unroll
        for (int i = 0; i < BM / 4; i++) to[i] = pack(x[2 * i], x[2 * i + 1]);
      };
      // dp = P * (dp - delta). LATE_DQ takes the rounded P, whose f32 has no registers any more.
      auto ds_of = [&](float(&dp)[BM / 2], const u32(&p)[BM / 4], u32 two) {
        const u32 delta = base + AT_DELTA + two * BM * 4 + (fresh_thread() & 3) * 8;
#pragma unroll
        for (int i = 0; i < BM / 8; i++) {
          const float2 d = shared_pair(delta + 32 * i);
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const u32 pair = p[2 * i + e / 2];
            const float x = LATE_DQ ? (e & 1 ? high16(pair) : low16(pair)) : s[4 * i + e];
            dp[4 * i + e] = x * (dp[4 * i + e] - (e & 1 ? d.y : d.x));
          }
        }
      };
      auto store_ds = [&](const u32(&ds)[BM / 4], u32 slot) {
        const u32 t = fresh_thread();
        const u32 line = base + AT_DS + slot * DS_BYTES + (t / 32 * 16 + (t & 15)) * 128,
                  chunk = (t / 16 & 1 ^ t & 7) << 4;
#pragma unroll
        for (int c = 0; c < BM / 16; c++)
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                           line + c / 4 * (KEYS * 128) + (chunk ^ c % 4 * 32)),
                       "r"(ds[4 * c]), "r"(ds[4 * c + 1]), "r"(ds[4 * c + 2]), "r"(ds[4 * c + 3])
                       : "memory");
        fence_async_shared();
      };
      auto store_dq = [&](int it) {
        const u32 two = it & 1;
        mb_wait(dq_empty + 8 * two, it >> 1 & 1 ^ 1);
        const u32 t = fresh_thread(),
                  to = base + AT_DQ + two * 2 * DQ_BYTES + t / 128 * DQ_BYTES + (t & 127) * 16;
#pragma unroll
        for (int i = 0; i < 8; i++)
          asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 2048), "f"(dq[4 * i]),
                       "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                       : "memory");
        fence_async_shared();
        mb_arrive(dq_full + 8 * two);
      };
      auto advance = [&] {
        qi = qi + 1 == Q_STAGES ? 0 : qi + 1;
        if (qi == 0) qp ^= 1;
      };
      auto release_q = [&] {  // of the step before
        if (leader && it > 0) mb_arrive(q_empty + 8 * (qi == 0 ? Q_STAGES - 1 : qi - 1));
      };
      auto next_block = [&] {
        if (m-- == m_begin) m = a.q_tiles - 1, head++;
      };
      mb_wait(q_full + 8 * qi, qp);

#if !LATE_DQ
      // Products and what runs beside them: dP (packing P), dV (dS), S of the next step (dS to shared memory), dQ and dK (exponentials of
      // the next step, dQ to shared memory). Barriers: 1: dS of both is there; 2 + wg: the other one has read what dS overwrites.
      issue_scores(s, k_rows, q_low + qi * (Q_BYTES / 16));
      wait_scores<0>(s);
      exponentials();
      bar_arrive(2 + other, 256);
#pragma unroll 1
      for (int left = steps; left > 0; left--, it++) {
        const u32 two = it & 1;
        float dp[BM / 2];
        u32 p[BM / 4];
        mb_wait(do_full + 8 * two, it >> 1 & 1);
        issue_scores(dp, v_rows, do_low + two * (Q_BYTES / 16));
        wait_products<1>();  // dK of the step before
        release_q();
        pack_all(p, s);
        issue_rows(dv, p, do_low + two * (Q_BYTES / 16));
        wait_scores<1>(dp);
        ds_of(dp, p, two);
        settle(dp);
        // Behind the last step these scores are of what stands in the ring, and nobody reads them.
        const int now = qi;
        advance();
        if (left > 1) mb_wait(q_full + 8 * qi, qp);
        issue_scores(s, k_rows, q_low + qi * (Q_BYTES / 16));
        wait_products<1>();  // dV: dS is packed into the registers that P had
        if (leader) mb_arrive(do_empty + 8 * two);
        pack_all(p, dp);
        bar_sync(2 + wg, 256);
        store_ds(p, 0);
        bar_sync(1, 256);
        issue_dq(0);
        issue_rows(dk, p, q_low + now * (Q_BYTES / 16));
        wait_scores<2>(s);
        next_block();
        exponentials();
        wait_dq<1>(dq);
        if (left > 1) bar_arrive(2 + other, 256);
        store_dq(it);
      }
#else
      // dQ comes a step late, so that the warpgroups need not meet: S (nothing), dQ of the step before (exponentials), dP (packing P),
      // dV (dS and its way to shared memory), dK (S of the next step). Barriers: 2 + 2 * wg + slot: dS of wg is there; 6 + 2 * wg + slot:
      // wg has read dS of both. At the first step dQ is of what stands in shared memory, and nobody reads it.
#pragma unroll 1
      for (int step = 0; step < steps; step++, it++) {
        const u32 two = it & 1, before = two ^ 1;
        float dp[BM / 2];
        u32 p[BM / 4], ds[BM / 4];
        if (step > 0) mb_wait(q_full + 8 * qi, qp);
        issue_scores(s, k_rows, q_low + qi * (Q_BYTES / 16));
        if (step > 0) bar_sync(2 + 2 * other + before, 256);
        issue_dq(before);
        wait_scores<1>(s);  // and dK of the step before
        release_q();
        exponentials();
        wait_dq<0>(dq);
        if (step + 1 < steps) bar_arrive(6 + 2 * wg + two, 256);
        if (step > 0) store_dq(it - 1);
        mb_wait(do_full + 8 * two, it >> 1 & 1);
        issue_scores(dp, v_rows, do_low + two * (Q_BYTES / 16));
        pack_all(p, s);
        issue_rows(dv, p, do_low + two * (Q_BYTES / 16));
        wait_scores<1>(dp);
        ds_of(dp, p, two);
        pack_all(ds, dp);
        if (step > 0) bar_sync(6 + 2 * other + before, 256);
        store_ds(ds, two);
        bar_arrive(2 + 2 * wg + two, 256);
        issue_rows(dk, ds, q_low + qi * (Q_BYTES / 16));
        wait_products<1>();  // dV
        if (leader) mb_arrive(do_empty + 8 * two);
        advance();
        next_block();
      }
      bar_sync(2 + 2 * other + (it - 1 & 1), 256);
      issue_dq(it - 1 & 1);
      wait_dq<0>(dq);
      store_dq(it - 1);
#endif
      wait_rows<0>(dk), wait_rows<0>(dv);
    }

    // ---- dK and dV, through the space of K and V, which both warpgroups have done with
    bar_sync(1, 256);
    const u32 line = base + wg * (64 * D * 2) + (warp * 16 + (lane & 15)) * 128;
#pragma unroll
    for (int which = 0; which < 2; which++) {
      const float f = which ? 1.f : a.scale;
#pragma unroll
      for (int c = 0; c < D / 16; c++) {
        const float* x = (which ? dv : dk) + 8 * c;
        const u32 addr =
            line + (which ? AT_V : AT_K) + c / 4 * 8192 + ((c % 4 * 2 + lane / 16 ^ lane & 7) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                     "r"(pack(x[0] * f, x[1] * f)), "r"(pack(x[2] * f, x[3] * f)),
                     "r"(pack(x[4] * f, x[5] * f)), "r"(pack(x[6] * f, x[7] * f))
                     : "memory");
      }
    }
    fence_async_shared();
    bar_sync(11 + wg, 128);
    if (leader) {
      const Tile t = locate(a, tickets[round & 1]);  // not kept: registers are short in the loop
      mb_arrive(t_empty + 8 * (round & 1));
      tma_store(&map_dk, base + AT_K + wg * (64 * D * 2), t.n * KEYS + wg * 64, t.head, t.batch);
      tma_store(&map_dv, base + AT_V + wg * (64 * D * 2), t.n * KEYS + wg * 64, t.head, t.batch);
      bulk_commit();
      bulk_wait_read();
      mb_arrive(kv_empty);
    }
    if (!PERSISTENT) break;
  }
  if (leader) bulk_wait();
}

// ---- before and after ---------------------------------------------------------------------------------------------------

struct RowArgs {
  const u16 *o, *grad;  // O, dO
  long long o_row, o_head, o_batch, grad_row, grad_head, grad_batch;
  const float* lse;  // [batch, head, query], natural logarithm
  float *lse2, *delta;
  u32 *turns, *ticket;
  int sq, heads, q_tiles;
};

// 128 threads, 16 bytes each: D / 8 threads a row. Grid: (ceil(q_tiles * BM / rows of a block), batch * heads).
extern "C" __global__ void __launch_bounds__(128) attention_backward_rows(const __grid_constant__ RowArgs a) {
  const int each = D / 8, row = blockIdx.x * (128 / each) + threadIdx.x / each, part = threadIdx.x % each;
  const int batch = blockIdx.y / a.heads, head = blockIdx.y - batch * a.heads;
  const int rows = a.q_tiles * BM;
  float sum = 0.f;
  if (row < a.sq) {
    const uint4 x = *(const uint4*)(a.o + batch * a.o_batch + head * a.o_head + row * a.o_row + part * 8);
    const uint4 y =
        *(const uint4*)(a.grad + batch * a.grad_batch + head * a.grad_head + row * a.grad_row + part * 8);
    const u32 xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; i++) sum += low16(xs[i]) * low16(ys[i]) + high16(xs[i]) * high16(ys[i]);
  }
#pragma unroll
  for (int i = each / 2; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (part == 0 && row < rows) {
    const float l = row < a.sq ? a.lse[(long long)blockIdx.y * a.sq + row] : INF;
    a.delta[(long long)blockIdx.y * rows + row] = sum;
    a.lse2[(long long)blockIdx.y * rows + row] = l == -INF ? INF : l * LOG2E;
    if (row % BM == 0) a.turns[(long long)blockIdx.y * a.q_tiles + row / BM] = 0;
  }
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *a.ticket = 0;
}

struct DqArgs {
  const float* dq;
  u16* out;
  long long row, head, batch;  // strides
  Args a;
};

// 128 threads: one part of 64 x 64. Grid: (q_tiles * 2, batch * heads).
extern "C" __global__ void __launch_bounds__(128) attention_backward_dq(const __grid_constant__ DqArgs d) {
  __shared__ __align__(16) u32 tile[64][36];
  const int m = blockIdx.x / 2, unit = blockIdx.x % 2, t = threadIdx.x, lane = t & 31;
  const int batch = blockIdx.y / d.a.heads, head = blockIdx.y - batch * d.a.heads;
  const float4* from =
      (const float4*)(d.dq + ((long long)blockIdx.y * d.a.q_tiles * 2 + blockIdx.x) * 4096) + t;
  const bool any = seen_key_tiles(d.a, m) > 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const float4 x = any ? __ldcs(from + i * 128) : make_float4(0.f, 0.f, 0.f, 0.f);
    u32* to = &tile[t / 32 * 16 + lane / 4][i * 4 + (lane & 3)];
    to[0] = pack(x.x * d.a.scale, x.y * d.a.scale), to[8 * 36] = pack(x.z * d.a.scale, x.w * d.a.scale);
  }
  __syncthreads();
  const int row0 = m * BM + (D == 64 ? unit * 64 : 0), column = D == 128 ? unit * 64 : 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = i * 16 + t / 8;
    if (row0 + r < d.a.sq)
      *(uint4*)(d.out + batch * d.batch + head * d.head + (row0 + r) * d.row + column + t % 8 * 8) =
          *(const uint4*)&tile[r][t % 8 * 4];
  }
}
