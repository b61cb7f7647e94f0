#include "compiler/codegen/cuda/attention/flash_backward_heads_text.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_backward_text.h"

namespace stridec::codegen::cuda {
namespace {

constexpr std::string_view kSizes = R"(
constexpr int kQueryBytes = kRows * kDepth * 2, kKeyBytes = kKeys * kDepth * 2, kScoreBytes = kKeys * kRows * 2;
// Shared memory, in bytes from its start: slots of K and V, of Q and the gradient of o, of dS, and of the
// log-sum-exps and deltas of a tile of rows.
constexpr int kAtQueries = kKeySlots * 2 * kKeyBytes, kAtScores = kAtQueries + kQuerySlots * 2 * kQueryBytes;
constexpr int kAtSums = kAtScores + kScoreSlots * kScoreBytes, kAtDeltas = kAtSums + kQuerySlots * kRows * 4;
// Barriers, in bytes from the first one. Each slot has a full and an empty barrier.
constexpr int kKeysFull = 0, kKeysEmpty = kKeysFull + 8 * kKeySlots, kQueriesFull = kKeysEmpty + 8 * kKeySlots;
constexpr int kQueriesEmpty = kQueriesFull + 8 * kQuerySlots, kScoresFull = kQueriesEmpty + 8 * kQuerySlots;
constexpr int kScoresEmpty = kScoresFull + 8 * kScoreSlots;

struct Backward {
  int rows, keys, row_tiles, heads;
  int seen;       // row r sees the keys before r + seen, if there is a causal mask
  float scale;    // of scores, times log2(e)
  float *sums;    // [head][row_tiles * kRows]: log-sum-exp times log2(e); infinite in rows that see no key
  float *deltas;  // the same shape: the sum over a row of o times its gradient
};
)";

// A thread that multiplies holds two of every 8 queries, for keys `key` and `key + 8`. Scores are computed
// transposed, so that P and dS are in registers as A operands.
constexpr std::string_view kMain = R"(
template <int kSlots> struct Slot {
  int at = 0;
  unsigned phase = 0;
  inline void advance() {
    if (++at == kSlots) at = 0, phase ^= 1;
  }
};

template <class Locate, class Load>
static inline void load_heads(const Backward& a, unsigned base, unsigned bars, Locate locate, Load load) {
  Slot<kKeySlots> keys;
  Slot<kQuerySlots> queries;
#pragma unroll 1
  for (int head = blockIdx.x; head < a.heads; head += gridDim.x, keys.advance()) {
    const auto place = locate(head);
#pragma unroll 1
    for (int m = 0; m < a.row_tiles; m++, queries.advance()) {
      const long at = ((long)head * a.row_tiles + m) * kRows;
      const unsigned full = bars + kQueriesFull + 8 * queries.at, to = base + kAtQueries + queries.at * 2 * kQueryBytes;
      barrier_wait(bars + kQueriesEmpty + 8 * queries.at, queries.phase ^ 1);
      barrier_expect(full, 2 * kQueryBytes + 2 * kRows * 4);
      load(0, to, full, m * kRows, place);
      load(1, to + kQueryBytes, full, m * kRows, place);
      copy_bulk(base + kAtSums + queries.at * kRows * 4, a.sums + at, kRows * 4, full);
      copy_bulk(base + kAtDeltas + queries.at * kRows * 4, a.deltas + at, kRows * 4, full);
      if (m > 0) continue;
      const unsigned keys_full = bars + kKeysFull + 8 * keys.at, keys_to = base + keys.at * 2 * kKeyBytes;
      barrier_wait(bars + kKeysEmpty + 8 * keys.at, keys.phase ^ 1);
      barrier_expect(keys_full, 2 * kKeyBytes);
      load(2, keys_to, keys_full, 0, place);
      load(3, keys_to + kKeyBytes, keys_full, 0, place);
    }
  }
}

template <class Locate, class Out>
static inline void multiply_heads(const Backward& a, unsigned base, unsigned bars, int group, Locate locate, const Out& out) {
  const bool first_lane = (threadIdx.x & 31) == 0;
  const unsigned q_low = tile_low(base + kAtQueries, kRows * 128), k_low = tile_low(base, 16),
                 s_low = tile_low(base + kAtScores, kKeys * 128);
  Slot<kKeySlots> keys;
  Slot<kQuerySlots> queries;
  Slot<kScoreSlots> scores;
  int turn = 0;  // the group that computes the next 64 columns of dQ
#pragma unroll 1
  for (int head = blockIdx.x; head < a.heads; head += gridDim.x, keys.advance()) {
    const auto place = locate(head);
    const unsigned k_tile = k_low + keys.at * (2 * kKeyBytes / 16), k_rows = k_tile + group * (kTiles * 512),
                   v_rows = k_rows + kKeyBytes / 16;
    float dk[kTiles][kDepth / 2], dv[kTiles][kDepth / 2];
#pragma unroll
    for (int j = 0; j < kTiles; j++)
#pragma unroll
      for (int i = 0; i < kDepth / 2; i++) dk[j][i] = dv[j][i] = 0.0f;
    barrier_wait(bars + kKeysFull + 8 * keys.at, keys.phase);
#pragma unroll 1
    for (int m = 0; m < a.row_tiles; m++, queries.advance(), scores.advance()) {
      const unsigned q_rows = q_low + queries.at * (2 * kQueryBytes / 16);
      barrier_wait(bars + kQueriesFull + 8 * queries.at, queries.phase);
#pragma unroll 1
      for (int from = 0; from < kRows && (from == 0 || m * kRows + from < a.rows); from += kPart) {
        const unsigned q = q_rows + from * 8, g = q + kQueryBytes / 16;  // descriptors of the part's first row
        float s[kTiles][kPart / 2], dp[kTiles][kPart / 2];
#pragma unroll
        for (int j = 0; j < kTiles; j++) {
          issue_scores(s[j], k_rows + j * 512, q);
          issue_scores(dp[j], v_rows + j * 512, g);
        }
        // Number of products issued after the one that a wait is for; they stay in flight.
        constexpr int kLater = 2 * kTiles - 1;
#pragma unroll
        for (int j = 0; j < kTiles; j++) {
          unsigned p[kPart / 4], ds[kPart / 4];
          wait_scores<kLater>(s[j]);
          to_weights(a, s[j], base + kAtSums + (queries.at * kRows + from) * 4, m * kRows + from, group * kTiles + j);
          pack_all(p, s[j]);
          issue_rows(dv[j], p, g);
          wait_scores<kLater>(dp[j]);
          to_ds(dp[j], p, base + kAtDeltas + (queries.at * kRows + from) * 4);
          pack_all(ds, dp[j]);
          if (from == 0 && j == 0) barrier_wait(bars + kScoresEmpty + 8 * scores.at, scores.phase ^ 1);
          store_ds(ds, base + kAtScores + scores.at * kScoreBytes + (group * kTiles + j) * 8192, from);
          issue_rows(dk[j], ds, q);
        }
        // dV and dK of the last tile stay in flight during the next part.
#pragma unroll
        for (int j = 0; j < kTiles - 1; j++) wait_rows<2>(dv[j]), wait_rows<2>(dk[j]);
      }
#pragma unroll
      for (int j = 0; j < kTiles; j++) wait_rows<0>(dv[j]), wait_rows<0>(dk[j]);
      __syncwarp();
      if (first_lane) barrier_arrive(bars + kScoresFull + 8 * scores.at), barrier_arrive(bars + kQueriesEmpty + 8 * queries.at);
#pragma unroll 1
      for (int slab = 0; slab < kDepth / 64; slab++) {
        const bool mine = turn == group;
        if (++turn == kGroups) turn = 0;
        if (!mine) continue;
        barrier_wait(bars + kScoresFull + 8 * scores.at, scores.phase);
        float dq[32];
        issue_dq(dq, s_low + scores.at * (kScoreBytes / 16), k_tile + slab * (kKeys * 128 / 16));
        wait_dq<0>(dq);
        if (first_lane) barrier_arrive(bars + kScoresEmpty + 8 * scores.at);
        const unsigned t = fresh_thread() & 127;
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int row = m * kRows + t / 32 * 16 + (t & 31) / 4 + h * 8;
          store_sums(out, 2, place, row < a.rows, row, slab * 64, dq, h);
        }
      }
    }
    if (first_lane) barrier_arrive(bars + kKeysEmpty + 8 * keys.at);
    const unsigned t = fresh_thread() & 127;
#pragma unroll
    for (int j = 0; j < kTiles; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int key = (group * kTiles + j) * 64 + t / 32 * 16 + (t & 31) / 4 + h * 8;
        store_sums(out, 0, place, key < a.keys, key, 0, dk[j], h);
        store_sums(out, 1, place, key < a.keys, key, 0, dv[j], h);
      }
  }
}

template <class Locate, class Load, class Out>
static inline void attention_backward(const Backward& a, unsigned char* shared, unsigned long* bar_words, Locate locate, Load load,
                                      const Out& out) {
  const unsigned base = shared_address(shared), bars = shared_address(bar_words);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    const auto init = [&](int at, int slots, int count) {
      for (int i = 0; i < slots; i++) barrier_init(bars + at + 8 * i, count);
    };
    init(kKeysFull, kKeySlots, 1), init(kKeysEmpty, kKeySlots, 4 * kGroups);
    init(kQueriesFull, kQuerySlots, 1), init(kQueriesEmpty, kQuerySlots, 4 * kGroups);
    init(kScoresFull, kScoreSlots, 4 * kGroups), init(kScoresEmpty, kScoreSlots, 4 * kDepth / 64);
    barriers_ready();
  }
  __syncthreads();
  if (group == kGroups) {
    if constexpr (kHandsOver) fewer_registers<kLoaderRegisters>();
    if (threadIdx.x == 128 * kGroups) load_heads(a, base, bars, locate, load);
    return;
  }
  if constexpr (kHandsOver) more_registers<kWorkerRegisters>();
  multiply_heads(a, base, bars, group, locate, out);
}
)";

// Further steps of a thread that multiplies.
constexpr std::string_view kSteps = R"(
// Turns scores into weights, in place. `row`: the first query; `tile`: 64 keys.
static inline void to_weights(const Backward& a, float (&s)[kPart / 2], unsigned sums, int row, int tile) {
  const unsigned t = fresh_thread();
#pragma unroll
  for (int i = 0; i < kPart / 8; i++) {
    const float2 l = shared_pair(sums + (t & 3) * 8 + 32 * i);
#pragma unroll
    for (int e = 0; e < 4; e++) power(s[4 * i + e], a.scale, e & 1 ? l.y : l.x);
  }
  if (tile * 64 + 64 > a.keys || kCausal && row + a.seen < tile * 64 + 64) {
    const int key = tile * 64 + (t & 127) / 32 * 16 + (t & 31) / 4, seen = row + 2 * (t & 3) + a.seen;
#pragma unroll
    for (int i = 0; i < kPart / 2; i++) {
      const int k = key + (i & 2) * 4;
      if (k >= a.keys || kCausal && k >= seen + i / 4 * 8 + (i & 1)) s[i] = 0.0f;
    }
  }
}
// Replaces dP by P * (dP - delta), with the rounded P.
static inline void to_ds(float (&dp)[kPart / 2], const unsigned (&p)[kPart / 4], unsigned deltas) {
  const unsigned at = deltas + (fresh_thread() & 3) * 8;
#pragma unroll
  for (int i = 0; i < kPart / 8; i++) {
    const float2 d = shared_pair(at + 32 * i);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const unsigned pair = p[2 * i + e / 2];
      dp[4 * i + e] = (e & 1 ? high_of(pair) : low_of(pair)) * (dp[4 * i + e] - (e & 1 ? d.y : d.x));
    }
  }
}
// Stores dS of 64 keys as lines of 64 queries, with a swizzle; `from` is the first query.
static inline void store_ds(const unsigned (&ds)[kPart / 4], unsigned to, int from) {
  const unsigned t = fresh_thread() & 127, line = to + (t / 32 * 16 + (t & 15)) * 128, chunk = (t / 16 & 1 ^ t & 7) << 4 ^ from * 2;
#pragma unroll
  for (int c = 0; c < kPart / 16; c++)
    store_matrices(line + (chunk ^ c * 32), ds[4 * c], ds[4 * c + 1], ds[4 * c + 2], ds[4 * c + 3]);
  fence_async();
}
)";

}  // namespace

int BackwardHeadSizes::launched_registers() const {
  return std::min(255, 65536 / blocks_sm() / threads() / 8 * 8);  // as the compiler allots them
}

int BackwardHeadSizes::worker_registers() const {
  return std::min(240, (launched_registers() * (groups() + 1) - loader_registers()) / groups() / 8 * 8);
}

int64_t BackwardHeadSizes::shared_bytes() const {
  return 2 * key_slots() * keys() * depth * 2 + query_slots() * (2 * rows * depth * 2 + 2 * rows * 4) +
         int64_t{score_slots()} * keys() * rows * 2;
}

std::string backward_head_sizes(const BackwardHeadSizes& sizes, DType dtype, bool causal) {
  return cat("constexpr int kDepth = ", sizes.depth, ", kGroups = ", sizes.groups(),
             ", kTiles = ", sizes.tiles(), ", kRows = ", BackwardHeadSizes::rows, ", kPart = ", sizes.part(),
             ", kKeys = ", sizes.keys(), ", kKeySlots = ", sizes.key_slots(),
             ", kQuerySlots = ", sizes.query_slots(), ", kScoreSlots = ", sizes.score_slots(),
             ";\nconstexpr int kWorkerRegisters = ", sizes.worker_registers(),
             ", kLoaderRegisters = ", sizes.loader_registers(), ";\nconstexpr bool kHandsOver = ",
             sizes.worker_registers() > sizes.launched_registers() ? "true" : "false",
             ";\nconstexpr bool kCausal = ", causal ? "true" : "false", ";\n", backward_numbers(dtype),
             kSizes);
}

std::string backward_head_products(const BackwardHeadSizes& sizes, DType dtype) {
  return cat(backward_machine(sizes.part(), sizes.depth, dtype), kSteps, kMain);
}

}  // namespace stridec::codegen::cuda
