#include "tests/support/emulated_text.h"

#include <algorithm>
#include <cstdio>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_mma.h"
#include "compiler/codegen/cuda/matrix/matrix.h"
#include "compiler/codegen/cuda/matrix/matrix_wgmma.h"
#include "compiler/kernels/cuda_matrix.h"

namespace stridec::test {
namespace {

std::string machine_text() {
  std::string out = R"(#define STRIDEC_EMULATE 1
struct sd_dim3 { unsigned x, y, z; };
struct sd_machine {
  sd_dim3 thread, block, size, grid;
  unsigned rank;
  void (*barrier)(int);
  void (*await)(const int*, int);
  void (*named)(int, int, int);
  unsigned long (*exchange)(unsigned long, int);
  void (*touch)(void*, long, int);
  void (*meet_at)(void*);
)";
  std::string functions;
  const auto add = [&](const char* type, const char* name, const char* suffix, bool two) {
    out += cat("  ", type, " (*", name, suffix, "_)(", type, two ? cat(", ", type) : std::string(), ");\n");
    functions +=
        cat("SD_UNSEEN static inline ", type, " sd_libm_", name, suffix, "(", type, " x",
            two ? cat(", ", type, " y") : std::string(), ") { return sd_machine_now->", name, suffix, "_(x",
            two ? ", y" : "", "); }\n#define ", name, suffix, " sd_libm_", name, suffix, "\n");
  };
#define X(name) add("float", #name, "f", false);
  STRIDEC_UNARY(X)
#undef X
#define X(name) add("double", #name, "", false);
  STRIDEC_UNARY(X)
#undef X
#define X(name) add("float", #name, "f", true);
  STRIDEC_BINARY(X)
#undef X
#define X(name) add("double", #name, "", true);
  STRIDEC_BINARY(X)
#undef X
  return cat(out, R"(};
extern "C" sd_machine* sd_machine_now = nullptr;
// What the machine does is no access of the kernel's.
#define SD_UNSEEN __attribute__((disable_sanitizer_instrumentation))
)",
             functions, R"(
SD_UNSEEN static inline sd_dim3 sd_thread() { return sd_machine_now->thread; }
SD_UNSEEN static inline sd_dim3 sd_block() { return sd_machine_now->block; }
SD_UNSEEN static inline sd_dim3 sd_size() { return sd_machine_now->size; }
SD_UNSEEN static inline sd_dim3 sd_grid() { return sd_machine_now->grid; }
SD_UNSEEN static inline unsigned sd_rank() { return sd_machine_now->rank; }
SD_UNSEEN static inline void sd_barrier(int of) { sd_machine_now->barrier(of); }
#define threadIdx sd_thread()
#define blockIdx sd_block()
#define blockDim sd_size()
#define gridDim sd_grid()
#define __global__
#define __shared__ static
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __syncthreads() sd_barrier(1)
#define __syncwarp(members) sd_barrier(0)
#define __threadfence_system()
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
extern "C" {
SD_UNSEEN void __tsan_func_entry(void*) {}
SD_UNSEEN void __tsan_func_exit() {}
#define SD_TOLD(name, bytes) \
  SD_UNSEEN void __tsan_read##name(void* at) { sd_machine_now->touch(at, bytes, 0); } \
  SD_UNSEEN void __tsan_write##name(void* at) { sd_machine_now->touch(at, bytes, 1); } \
  SD_UNSEEN void __tsan_unaligned_read##name(void* at) { sd_machine_now->touch(at, bytes, 0); } \
  SD_UNSEEN void __tsan_unaligned_write##name(void* at) { sd_machine_now->touch(at, bytes, 1); }
SD_TOLD(1, 1) SD_TOLD(2, 2) SD_TOLD(4, 4) SD_TOLD(8, 8) SD_TOLD(16, 16)
SD_UNSEEN void* __tsan_memcpy(void* to, void* from, unsigned long bytes) {
  sd_machine_now->touch(from, bytes, 0);
  sd_machine_now->touch(to, bytes, 1);
  return __builtin_memcpy(to, from, bytes);
}
SD_UNSEEN void* __tsan_memmove(void* to, void* from, unsigned long bytes) { return __tsan_memcpy(to, from, bytes); }
SD_UNSEEN void* __tsan_memset(void* to, int byte, unsigned long bytes) {
  sd_machine_now->touch(to, bytes, 1);
  return __builtin_memset(to, byte, bytes);
}
}
template <class T> SD_UNSEEN static inline T __shfl_xor_sync(unsigned, T x, int distance) {
  unsigned long bits = 0;
  __builtin_memcpy(&bits, &x, sizeof(T));
  bits = sd_machine_now->exchange(bits, distance);
  __builtin_memcpy(&x, &bits, sizeof(T));
  return x;
}
template <class T> static inline T __shfl_sync(unsigned members, T x, int lane) {
  return __shfl_xor_sync(members, x, (threadIdx.x ^ lane) & 31);
}
static inline bool __any_sync(unsigned members, bool x) {
  for (int distance = 1; distance < 32; distance *= 2) x |= __shfl_xor_sync(members, x, distance);
  return x;
}
static inline unsigned __ballot_sync(unsigned members, bool x) {
  unsigned bits = x ? 1u << (threadIdx.x & 31) : 0;
  for (int distance = 1; distance < 32; distance *= 2) bits |= __shfl_xor_sync(members, bits, distance);
  return bits;
}
#define __popc(x) __builtin_popcount(x)
#define SD_ATOMIC(name, now) \
  template <class T> SD_UNSEEN static inline T name(T* at, T x) { \
    const T old = *at; \
    *at = now; \
    return old; \
  }
SD_ATOMIC(atomicAdd, old + x)
SD_ATOMIC(atomicMax, old > x ? old : x)
SD_ATOMIC(atomicMin, old < x ? old : x)
template <class T> SD_UNSEEN static inline T atomicCAS(T* at, T expected, T value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}
template <class T> SD_UNSEEN static inline T atomicExch(T* at, T value) {
  const T old = *at;
  *at = value;
  return old;
}
// Acquires and releases: of counters where blocks meet.
SD_UNSEEN static inline unsigned atomicInc(unsigned* at, unsigned last) {
  sd_machine_now->meet_at(at);
  const unsigned old = *at;
  *at = old >= last ? 0 : old + 1;
  return old;
}
SD_UNSEEN static inline int __syncthreads_or(int x) {
  static int any;
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  if (x) any = 1;
  __syncthreads();
  const int out = any;
  __syncthreads();
  return out;
}
template <class T, T... I> struct sd_numbers {};
template <class... A, int... I>
static inline void sd_apply(void (*kernel)(A...), const long* words, sd_numbers<int, I...>) {
  kernel((A)words[I]...);
}
template <class... A> static inline void sd_apply(void (*kernel)(A...), const long* words) {
  sd_apply(kernel, words, __make_integer_seq<sd_numbers, int, sizeof...(A)>());
}
#define KERNEL kernel
)");
}

// ---- tiles in shared memory

constexpr std::string_view kSharedArray = "extern __shared__ __align__(1024) unsigned char shared[];";
constexpr std::string_view kBars = "__shared__ alignas(8) unsigned long bars[";

// Shared memory: the maximum per block, followed by the block's barriers.
constexpr int kShared = 227 << 10, kBarriers = 1 << 10;

constexpr std::string_view kMemory = R"(
#define sd_shared sd_all_shared[sd_rank()]
struct alignas(8) float2 { float x, y; };
struct alignas(8) int2 { int x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
#define fmaf(a, b, c) __builtin_fmaf(a, b, c)
#define fmaxf(a, b) __builtin_fmaxf(a, b)
#define fma(a, b, c) __builtin_fma(a, b, c)
#define __cvta_generic_to_shared(p) ((const unsigned char*)(p) - sd_shared)
template <int kBytes> static inline void copy_some(unsigned to, const void* from, unsigned bytes) {
  __builtin_memcpy(sd_shared + to, from, bytes);
  __builtin_memset(sd_shared + to + bytes, 0, kBytes - bytes);
}
template <int kBytes> static inline void copy_async(unsigned to, const void* from, bool live = true) {
  copy_some<kBytes>(to, from, live ? kBytes : 0);
}
static inline void launch_dependents() {}
static inline void wait_predecessor() {}
static inline void commit_copies() {}
static inline void wait_all_copies() {}
template <int kGroups> static inline void wait_copies() {}
template <class T> static inline void store_shared(unsigned to, T v) { __builtin_memcpy(sd_shared + to, &v, sizeof(T)); }
static inline void prefetch(const void*) {}
static inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
template <int kBytes> static inline void move_wide(void* to, const void* from) { __builtin_memcpy(to, from, kBytes); }
)";

constexpr std::string_view kNumbers = R"(
// Numbers of a word.
static inline float sd_small(unsigned b, int mantissa, int bias) {
  const int exponent = (b & 127) >> mantissa, fraction = b & ((1 << mantissa) - 1);
  const float size = exponent ? (float)((1 << mantissa) + fraction) : (float)fraction;
  const int power = (exponent ? exponent : 1) - bias - mantissa;
  const float scale = __builtin_bit_cast(float, (unsigned)(127 + power) << 23);
  return b & 128 ? -size * scale : size * scale;
}
static inline float sd_f16(unsigned w, int i) { return (float)__builtin_bit_cast(_Float16, (unsigned short)(w >> 16 * i)); }
static inline float sd_bf16(unsigned w, int i) { return __builtin_bit_cast(float, w >> 16 * i << 16); }
static inline float sd_tf32(unsigned w, int) { return __builtin_bit_cast(float, w & 0xffffe000u); }
static inline float sd_e4m3(unsigned w, int i) { return sd_small(w >> 8 * i & 255, 3, 7); }
static inline float sd_e5m2(unsigned w, int i) { return sd_small(w >> 8 * i & 255, 2, 15); }
static inline int sd_s8(unsigned w, int i) { return (signed char)(w >> 8 * i); }
static inline int sd_u8(unsigned w, int i) { return (unsigned char)(w >> 8 * i); }
)";

// Lanes of a warp read each other's fragments; instructions follow PTX ISA's fragment layouts.
constexpr std::string_view kMma = R"(
static unsigned sd_all_words[256][6][32];
#define sd_words sd_all_words[sd_rank() * 32 + threadIdx.x / 32]
static inline void load_rows(unsigned (&r)[4], unsigned from, bool turned) {
  unsigned (*words)[32] = sd_words;
  const int lane = threadIdx.x % 32;
  words[0][lane] = from;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const auto row = [&](int line) SD_UNSEEN { return sd_shared + words[0][i * 8 + line]; };
    if (!turned) {
      r[i] = *(const unsigned*)(row(lane / 4) + lane % 4 * 4);
    } else {
      r[i] = ((const unsigned short*)row(lane % 4 * 2))[lane / 4] |
             (unsigned)((const unsigned short*)row(lane % 4 * 2 + 1))[lane / 4] << 16;
    }
  }
  __syncwarp();
}
static inline void load_matrices(unsigned (&r)[4], unsigned from) { load_rows(r, from, false); }
static inline void load_transposed(unsigned (&r)[4], unsigned from) { load_rows(r, from, true); }
template <class T, class A, class B>
SD_UNSEEN static inline void multiply(T (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int count, A a_of, B b_of) {
  unsigned (*words)[32] = sd_words;
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) words[i][lane] = a[i];
  words[4][lane] = b0, words[5][lane] = b1;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int c = 0; c < 8; ++c)
      for (int e = 0; e < count; ++e)
        d[i] += a_of(words[row / 8 + c / 4 * 2][row % 8 * 4 + c % 4], e) * b_of(words[4 + c / 4][column * 4 + c % 4], e);
  }
  __syncwarp();
}
)";

// Barriers in memory: total and pending number of threads; `state` is twice the pending bytes plus the phase.
constexpr std::string_view kEmulatedBarriers = R"(
struct sd_bar { unsigned short all, left; int state; };
static inline sd_bar* sd_bar_at(unsigned bar) { return (sd_bar*)(sd_shared + bar); }
SD_UNSEEN static void sd_settle(sd_bar* bar, int arrived, int bytes) {
  bar->left -= arrived;
  bar->state += 2 * bytes;
  if (bar->left == 0 && bar->state >> 1 == 0) bar->left = bar->all, bar->state ^= 1;
}
SD_UNSEEN static void barrier_init(unsigned bar, int count) {
  *sd_bar_at(bar) = {(unsigned short)count, (unsigned short)count, 0};
}
static inline void barriers_ready() {}
SD_UNSEEN static inline void barrier_wait(unsigned bar, unsigned parity) { sd_machine_now->await(&sd_bar_at(bar)->state, parity); }
static inline void barrier_expect(unsigned bar, int bytes) { sd_settle(sd_bar_at(bar), 1, bytes); }
static inline void barrier_arrive(unsigned bar) { sd_settle(sd_bar_at(bar), 1, 0); }
static inline void barrier_arrive_copied(unsigned bar) { barrier_arrive(bar); }
static inline void fence_async() {}
SD_UNSEEN static inline void named_arrive(int bar, int threads) { sd_machine_now->named(bar, threads, 0); }
SD_UNSEEN static inline void named_sync(int bar, int threads) { sd_machine_now->named(bar, threads, 1); }
static inline void products_begin() {}
static inline void products_commit() {}
template <int kGroups> static inline void products_wait() {}
template <class T> static inline void products_ready(T&) {}
static inline unsigned long descriptor(unsigned low) { return low; }
)";

constexpr std::string_view kTensorMap = "struct alignas(64) TensorMap { unsigned long words[16]; };\n";

constexpr std::string_view kEmulatedMaps = R"(
struct sd_map {
  unsigned char* base;
  long dims[5], strides[5];
  int rank, element, swizzle, windows, box[5], steps[5], lower[3], upper[3];
};
struct TensorMap {
  const sd_map* of;
  TensorMap(long word) : of((const sd_map*)word) {}
};
)";

// Elements are copied in the order of the box, or pixel by pixel from the windows' corners. Elements outside
// the tensor are zero.
constexpr std::string_view kCopies = R"(
SD_UNSEEN static void sd_copy_element(unsigned to, const sd_map* map, const long* at) {
  if (map->swizzle) to ^= (to >> 7 & (map->swizzle / 16 - 1)) << 4;
  const unsigned char* from = map->base;
  bool inside = true;
  for (int d = 0; d < map->rank; ++d) inside &= at[d] >= 0 && at[d] < map->dims[d], from += at[d] * map->strides[d];
  for (int i = 0; i < map->element; ++i) sd_shared[to + i] = inside ? from[i] : 0;
}
SD_UNSEEN static void sd_copy(unsigned to, const sd_map* map, unsigned bar, const int* first) {
  int count = 1;
  for (int d = 0; d < map->rank; ++d) count *= map->box[d];
  for (int i = 0; i < count; ++i) {
    long at[5];
    int rest = i;
    for (int d = 0; d < map->rank; ++d) at[d] = first[d] + rest % map->box[d], rest /= map->box[d];
    sd_copy_element(to + i * map->element, map, at);
  }
  sd_settle(sd_bar_at(bar), 0, -count * map->element);
}
SD_UNSEEN static void sd_copy_windows(unsigned to, const sd_map* map, unsigned bar, const int* first, const int* beside) {
  const int channels = map->box[0], spatial = map->rank - 2;
  long corner[5];
  for (int d = 0; d < map->rank; ++d) corner[d] = first[d];
  for (int pixel = 0; pixel < map->box[1]; ++pixel) {
    long at[5];
    for (int d = 0; d < map->rank; ++d) at[d] = corner[d] + (d > 0 && d <= spatial ? beside[d - 1] : 0);
    for (int c = 0; c < channels; ++c, ++at[0]) sd_copy_element(to + (pixel * channels + c) * map->element, map, at);
    int d = 1;
    for (; d <= spatial; ++d) {
      corner[d] += map->steps[d];
      if (corner[d] < map->dims[d] + map->upper[d - 1]) break;
      corner[d] = map->lower[d - 1];
    }
    if (d > spatial) ++corner[d];
  }
  sd_settle(sd_bar_at(bar), 0, -map->box[1] * channels * map->element);
}
template <class... C> static inline void sd_copy_box(unsigned to, const TensorMap* map, unsigned bar, C... at) {
  const int first[] = {at...};
  sd_copy(to, map->of, bar, first);
}
#define copy_box1 sd_copy_box
#define copy_box2 sd_copy_box
#define copy_box3 sd_copy_box
#define copy_box4 sd_copy_box
#define copy_box5 sd_copy_box
static inline void copy_window3(unsigned to, const TensorMap* map, unsigned bar, int c, int x, int n, int ox) {
  const int first[] = {c, x, n}, beside[] = {ox};
  sd_copy_windows(to, map->of, bar, first, beside);
}
static inline void copy_window4(unsigned to, const TensorMap* map, unsigned bar, int c, int x, int y, int n, int ox, int oy) {
  const int first[] = {c, x, y, n}, beside[] = {ox, oy};
  sd_copy_windows(to, map->of, bar, first, beside);
}
static inline void copy_window5(unsigned to, const TensorMap* map, unsigned bar, int c, int x, int y, int z, int n, int ox,
                                int oy, int oz) {
  const int first[] = {c, x, y, z, n}, beside[] = {ox, oy, oz};
  sd_copy_windows(to, map->of, bar, first, beside);
}
)";

// wgmma: 64 rows and kColumns columns, depth kDepth. A thread holds two adjacent columns of every 8, in each
// of two rows. Tiles have swizzled rows of 128 bytes, along the depth or (transposed) in panels of 64 rows.
constexpr std::string_view kWarpGroups = R"(
template <int kBytes, bool kTurned> static inline unsigned sd_word_of(unsigned long tile, int line, int k, int* number) {
  unsigned at = (unsigned)(tile & 0x3fff) << 4;
  if (kTurned)
    at += (line >> 6) * ((unsigned)(tile >> 16 & 0x3fff) << 4) + k * 128 + (line & 63) * kBytes;
  else
    at += line * 128 + k * kBytes;
  at ^= (at >> 7 & 7) << 4;
  *number = at % 4 / kBytes;
  return *(const unsigned*)(sd_shared + at / 4 * 4);
}
template <int kColumns, int kDepth, bool kTurned, class T, class N, class B>
static inline void sd_add_products(T* d, const N (&a)[2][kDepth], unsigned long b, bool more, B b_of) {
  const int lane = threadIdx.x % 32;
  for (int j = 0; j < kColumns / 8; ++j)
    for (int e = 0; e < 2; ++e) {
      T sums[2] = {0, 0};
      for (int k = 0; k < kDepth; ++k) {
        int number;
        const unsigned word = sd_word_of<32 / kDepth, kTurned>(b, j * 8 + lane % 4 * 2 + e, k, &number);
        const N value = b_of(word, number);
        for (int h = 0; h < 2; ++h) sums[h] += a[h][k] * value;
      }
      for (int h = 0; h < 2; ++h) d[j * 4 + 2 * h + e] = (more ? d[j * 4 + 2 * h + e] : 0) + sums[h];
    }
}
template <int kColumns, int kDepth, bool kTurnedA, bool kTurnedB, class T, class A, class B>
SD_UNSEEN static void sd_group_products(T* d, unsigned long a, unsigned long b, bool more, A a_of, B b_of) {
  T values[2][kDepth];
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < kDepth; ++k) {
      int number;
      const int line = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + h * 8;
      const unsigned word = sd_word_of<32 / kDepth, kTurnedA>(a, line, k, &number);
      values[h][k] = a_of(word, number);
    }
  sd_add_products<kColumns, kDepth, kTurnedB>(d, values, b, more, b_of);
}
// The first factor from registers, those of mma.m16n8k16 in each warp.
template <int kColumns, int kDepth, bool, bool kTurnedB, class T, class A, class B>
SD_UNSEEN static void sd_group_products(T* d, const unsigned* a, unsigned long b, bool more, A a_of, B b_of) {
  T values[2][kDepth];
  for (int from = 0; from < 4; ++from)
    for (int i = 0; i < 4; ++i) {
      const unsigned word = __shfl_sync(~0u, a[i], threadIdx.x % 32 / 4 * 4 + from);
      for (int e = 0; e < 2; ++e) values[i % 2][i / 2 * 8 + from * 2 + e] = a_of(word, e);
    }
  sd_add_products<kColumns, kDepth, kTurnedB>(d, values, b, more, b_of);
}
)";

constexpr std::string_view kEmulatedCluster = R"(
static inline void cluster_sync() { sd_barrier(2); }
template <int kBlocks, int kLanes> static inline void sum_peers(Sum* total, const Sum* at) {
  for (int i = 0; i < kLanes; ++i) total[i] = 0;
  for (int block = 0; block < kBlocks; ++block)
    for (int i = 0; i < kLanes; ++i) total[i] += ((const Sum*)(sd_all_shared[block] + shared_address(at)))[i];
}
)";

constexpr std::string_view kEmulatedExchange = R"(
static inline void blocks_begin() { sd_barrier(2); }
static inline void cluster_sync() { sd_barrier(2); }
SD_UNSEEN static void give_sums(Sum* to, unsigned bar, int block, Sum a, Sum b) {
  Sum* const there = (Sum*)(sd_all_shared[block] + shared_address(to));
  there[0] = a, there[1] = b;
  sd_settle((sd_bar*)(sd_all_shared[block] + bar), 0, -8);
}
)";

constexpr std::string_view kEmulatedPeers = R"(
static inline void load_peer(float (&v)[4], unsigned from, int rank) { __builtin_memcpy(v, sd_all_shared[rank] + from, 16); }
static inline void meet_cluster() { sd_barrier(2); }
)";

// What only attention's backward pass uses.
constexpr std::string_view kBackward = R"(
SD_UNSEEN static void copy_bulk(unsigned to, const void* from, int bytes, unsigned bar) {
  __builtin_memcpy(sd_shared + to, from, bytes);
  sd_settle(sd_bar_at(bar), 0, -bytes);
}
SD_UNSEEN static void store_bulk(void* to, unsigned from, int bytes) { __builtin_memcpy(to, sd_shared + from, bytes); }
SD_UNSEEN static void add_bulk(void* to, unsigned from, int bytes) {
  for (int i = 0; i < bytes / 4; ++i) ((float*)to)[i] += ((const float*)(sd_shared + from))[i];
}
static inline void commit_bulk() {}
static inline void wait_bulk_read() {}
static inline void wait_bulk() {}
static inline void fence_global() {}
SD_UNSEEN static void wait_turn(const unsigned* at, unsigned turn) {
  while (*at != turn) sd_machine_now->await((const int*)at, *at & 1);
}
SD_UNSEEN static void pass_turn(unsigned* at) { ++*at; }
template <int kCount> static inline void fewer_registers() {}
template <int kCount> static inline void more_registers() {}
SD_UNSEEN static float2 shared_pair(unsigned at) { return *(const float2*)(sd_shared + at); }
SD_UNSEEN static void store_four(unsigned to, float a, float b, float c, float d) {
  const float all[4] = {a, b, c, d};
  __builtin_memcpy(sd_shared + to, all, 16);
}
// Lane l gives the address of row l % 8 of matrix l / 8, and holds two elements of row l / 4 of each.
SD_UNSEEN static void store_matrices(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned words[4] = {a, b, c, d};
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    const unsigned row = __shfl_sync(~0u, to, i * 8 + lane / 4);
    *(unsigned*)(sd_shared + row + lane % 4 * 4) = words[i];
  }
}
static inline unsigned fresh_thread() { return threadIdx.x; }
static inline void power(float& x, float scale, float shift) { x = exp2f(__builtin_fmaf(x, scale, -shift)); }
)";

// `type` is f16 or bf16.
std::string pack_text(bool half) {
  return half ? R"(static inline unsigned pack(float low, float high) {
  const auto bits = [](float x) { return (unsigned)__builtin_bit_cast(unsigned short, (_Float16)x); };
  return bits(low) | bits(high) << 16;
}
)"
              : R"(static inline unsigned pack(float low, float high) {
  const auto bits = [](float x) {
    const unsigned word = __builtin_bit_cast(unsigned, x);
    return (word + 0x7fff + (word >> 16 & 1)) >> 16;
  };
  return bits(low) | bits(high) << 16;
}
)";
}

bool replace(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

// Replaces every range from `from` to `to`, inclusive.
void replace_ranges(std::string& text, std::string_view from, std::string_view to, std::string_view with) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += with.size())
    text.replace(at, text.find(to, at) + to.size() - at, with);
}

// Replaces functions that consist of one wgmma, by means of the operands in its instruction.
void emulate_warp_groups(std::string& text) {
  constexpr std::string_view kInstruction = "wgmma.mma_async.sync.aligned.m64n",
                             kFunction = "static inline void ";
  for (size_t at = 0; (at = text.find(kInstruction, at)) != std::string::npos;) {
    const size_t start = text.rfind(kFunction, at), body = text.find("{\n", start),
                 end = text.find("\n}\n", at) + 3;
    const std::string signature = text.substr(start, body - start);
    int columns = 0, depth = 0, turned[2] = {0, 0};
    char sum[8], a[8], b[8];
    STRIDEC_CHECK(std::sscanf(text.c_str() + at + kInstruction.size(),
                              "%dk%d.%7[a-z0-9].%7[a-z0-9].%7[a-z0-9]", &columns, &depth, sum, a, b) == 5);
    // After the predicate come two signs and whether the operands in memory are transposed.
    const std::string options =
        text.substr(text.find(", p", at), text.find(';', text.find(", p", at)) - text.find(", p", at));
    const bool registers = signature.find("unsigned* a") != std::string::npos;
    if (registers)
      std::sscanf(options.c_str(), ", p, 1, 1, %d", &turned[1]);
    else
      std::sscanf(options.c_str(), ", p, 1, 1, %d, %d", &turned[0], &turned[1]);
    const char* more = signature.find("int more") != std::string::npos   ? "more"
                       : signature.find("int keep") != std::string::npos ? "keep"
                       : signature.find("_first_") != std::string::npos  ? "0"
                                                                         : "1";
    const std::string with = cat(signature, "{\n  sd_group_products<", columns, ", ", depth, ", ", turned[0],
                                 ", ", turned[1], ">(d, a, b, ", more, ", sd_", a, ", sd_", b, ");\n}\n");
    text.replace(start, end - start, with);
    at = start + with.size();
  }
}

// Replaces the device functions of tiles by emulated ones.
std::string with_tiles(std::string text, const codegen::DeviceKernel& kernel) {
  replace(text, kSharedArray, "unsigned char* const shared = sd_shared;");
  STRIDEC_CHECK(
      replace(text, codegen::cuda::memory_declarations(),
              cat("alignas(1024) static unsigned char sd_all_shared[", kernel.cluster, "][",
                  kShared + kBarriers, "];", codegen::cuda::swizzle_declarations(), kMemory, kNumbers)));
  constexpr DType kTypes[] = {DType::kF16,    DType::kBF16, DType::kTF32, DType::kF8E4M3,
                              DType::kF8E5M2, DType::kI8,   DType::kU8};
  for (const DType a : kTypes)
    for (const DType b : kTypes) {
      if (byte_size(a) != byte_size(b) || is_float(a) != is_float(b)) continue;
      const bool whole = !is_float(a);
      const std::string sum = whole ? "int" : "float";
      replace(text, codegen::cuda::mma_declarations(a, b, whole ? DType::kI32 : DType::kF32),
              cat(kMma, "static inline void multiply(", sum,
                  " (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) { multiply(d, a, b0, b1, ",
                  4 / byte_size(a), ", sd_", kernels::ptx_type(a), ", sd_", kernels::ptx_type(b), "); }\n"));
    }
  for (const DType sum : {DType::kF32, DType::kI32})
    replace(text, codegen::cuda::cluster_declarations(sum),
            cat("typedef ", sum == DType::kI32 ? "int" : "float", " Sum;", kEmulatedCluster));
  for (const DType sum : {DType::kF32, DType::kI32}) {
    const std::string exchange = codegen::cuda::exchange_declarations(sum);
    const size_t given = exchange.find("\ntemplate");
    replace(text, exchange,
            cat("typedef ", sum == DType::kI32 ? "int" : "float", " Sum;", kEmulatedExchange,
                exchange.substr(given)));
  }
  replace(text, codegen::cuda::peers_declarations(), kEmulatedPeers);
  emulate_warp_groups(text);
  for (const char* engine : {"static inline void copy_box", "static inline void copy_window"})
    replace_ranges(text, engine, "\n}\n", "");
  replace_ranges(text, "asm volatile(\"prefetch.tensormap", "\"memory\");", "");
  replace_ranges(text, "asm volatile(\"setmaxnreg", ");", "");
  replace_ranges(text, "asm volatile(\"\" : \"+l\"(n0));", ";", "");
  replace(text, codegen::cuda::barrier_declarations(), cat(kEmulatedBarriers, kCopies, kWarpGroups));
  if (text.find("struct Backward {") != std::string::npos) {
    constexpr std::string_view sizes = "constexpr int kDepth";
    replace(text, sizes, cat(kBackward, pack_text(text.find("cvt.rn.f16x2") != std::string::npos), sizes));
  }
  replace_ranges(text, "{ asm volatile(\"wgmma.wait_group", "}\n", "{}\n");
  replace_ranges(text, "{ asm volatile(\"\" : \"+f\"(d[0])", "}\n", "{}\n");
  replace(text, kTensorMap, kEmulatedMaps);
  if (const size_t bars = text.find(kBars); bars != std::string::npos)
    text.replace(bars, text.find(';', bars) - bars,
                 cat("unsigned long* const bars = (unsigned long*)(sd_shared + ", kShared, ")"));
  return text;
}

constexpr std::string_view kEntry =
    "extern \"C\" void sd_entry(const long* words) { sd_apply(kernel, words); }\n";

}  // namespace

std::string emulated_text(const codegen::DeviceKernel& kernel, bool tiles) {
  return cat(machine_text(), tiles ? with_tiles(kernel.code.text, kernel) : kernel.code.text, kEntry);
}

}  // namespace stridec::test
