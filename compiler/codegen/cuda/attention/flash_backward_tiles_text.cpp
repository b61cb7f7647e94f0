#include "compiler/codegen/cuda/attention/flash_backward_tiles_text.h"

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_backward_text.h"

namespace stridec::codegen::cuda {
namespace {

constexpr std::string_view kSizes = R"(
constexpr int kQueryBytes = kRows * kDepth * 2, kKeyBytes = kKeys * kDepth * 2, kScoreBytes = kKeys * kRows * 2;
constexpr int kPartBytes = 64 * 64 * 4;  // a part of dQ, which a warp group adds in a step
// Shared memory, in bytes from its start.
constexpr int kAtValues = kKeyBytes, kAtQueries = kAtValues + kKeyBytes, kAtGrads = kAtQueries + kQuerySlots * kQueryBytes;
constexpr int kAtScores = kAtGrads + 2 * kQueryBytes, kAtParts = kAtScores + kScoreSlots * kScoreBytes;
constexpr int kAtSums = kAtParts + 4 * kPartBytes, kAtDeltas = kAtSums + kQuerySlots * kRows * 4;

struct Backward {
  int rows, keys, row_tiles, key_tiles, heads;
  int section;       // heads whose tiles run side by side
  int seen;          // row r sees the keys before r + seen, if there is a causal mask
  float scale;       // of scores, times log2(e)
  float *sums;       // [head][row_tiles * kRows]: log-sum-exp times log2(e); infinite in rows that see no key
  float *deltas;     // the same shape: the sum over a row of o times its gradient
  float *parts;      // [head][row_tiles][2][64 * 64]: dQ in f32, in the order of accumulators
  unsigned *turns;   // [head][row_tiles]: number of parts of dQ added so far
  unsigned *ticket;  // the next tile
};

// The first tile of rows that sees some of the keys from `key` on.
static inline int first_row_tile(const Backward& a, int key) {
  if (!kCausal) return 0;
  const int row = key + 1 - a.seen;
  if (row <= 0) return 0;
  return row / kRows < a.row_tiles ? row / kRows : a.row_tiles;
}
// The number of tiles of keys that a tile of rows sees; they are the first ones.
static inline int seen_key_tiles(const Backward& a, int tile) {
  if (!kCausal) return a.key_tiles;
  const int last = (tile + 1) * kRows - 2 + a.seen;
  if (last < 0) return 0;
  return last / kKeys + 1 < a.key_tiles ? last / kKeys + 1 : a.key_tiles;
}

struct Tile {
  int number, head;   // number of the tile of keys, and its head
  int first, steps;   // the first tile of rows, and their number
};
// The order within a section of heads: all first tiles of keys, then all second ones. A tile that waits for its turn thus
// starts after the tiles that it waits for, and with a causal mask the longest tiles start first.
static inline Tile tile_of(const Backward& a, int ticket) {
  const int whole = a.section * a.key_tiles, section = ticket / whole, rest = ticket - section * whole;
  const int left = a.heads - section * a.section, width = a.section < left ? a.section : left;
  Tile t;
  t.number = rest / width;
  t.head = section * a.section + rest - t.number * width;
  t.first = first_row_tile(a, t.number * kKeys);
  t.steps = a.row_tiles - t.first;
  return t;
}
)";

// The main launch. A consumer thread holds two of every 8 queries, for keys `key` and `key + 8`. Scores are
// computed transposed, so that P and dS are in registers as A operands.
constexpr std::string_view kMain = R"(
template <class Locate, class Load>
static inline void load_tiles(const Backward& a, unsigned base, unsigned bars, volatile int* tickets, Locate locate, Load load) {
  const unsigned k_full = bars, v_full = bars + 8, q_full = bars + 16, q_empty = q_full + 8 * kQuerySlots,
                 g_full = q_empty + 8 * kQuerySlots, g_empty = g_full + 16, kv_empty = g_empty + 48, t_full = kv_empty + 8,
                 t_empty = t_full + 16;
  int slot = 0, it = 0;
  unsigned phase = 1;
#pragma unroll 1
  for (int round = 0;; round++) {
    const int ticket = (int)atomicAdd(a.ticket, 1u);
    barrier_wait(t_empty + 8 * (round & 1), round >> 1 & 1 ^ 1);
    tickets[round & 1] = ticket;
    barrier_arrive(t_full + 8 * (round & 1));
    if (ticket >= a.key_tiles * a.heads) break;
    const Tile t = tile_of(a, ticket);
    const auto place = locate(t.head);
    barrier_wait(kv_empty, round & 1 ^ 1);
    barrier_expect(k_full, kKeyBytes);
    load(2, base, k_full, t.number * kKeys, place);
    if (t.steps == 0) {
      barrier_expect(v_full, kKeyBytes);
      load(3, base + kAtValues, v_full, t.number * kKeys, place);
    }
    int m = a.row_tiles - 1;
#pragma unroll 1
    for (int step = 0; step < t.steps; step++, it++, m--) {
      const unsigned two = it & 1;
      const long at = ((long)t.head * a.row_tiles + m) * kRows;
      barrier_wait(q_empty + 8 * slot, phase);
      barrier_expect(q_full + 8 * slot, kQueryBytes + kRows * 4);
      load(0, base + kAtQueries + slot * kQueryBytes, q_full + 8 * slot, m * kRows, place);
      copy_bulk(base + kAtSums + slot * kRows * 4, a.sums + at, kRows * 4, q_full + 8 * slot);
      if (++slot == kQuerySlots) slot = 0, phase ^= 1;
      if (step == 0) {
        barrier_expect(v_full, kKeyBytes);
        load(3, base + kAtValues, v_full, t.number * kKeys, place);
      }
      barrier_wait(g_empty + 8 * two, it >> 1 & 1 ^ 1);
      barrier_expect(g_full + 8 * two, kQueryBytes + kRows * 4);
      load(1, base + kAtGrads + two * kQueryBytes, g_full + 8 * two, m * kRows, place);
      copy_bulk(base + kAtDeltas + two * kRows * 4, a.deltas + at, kRows * 4, g_full + 8 * two);
    }
  }
}

// Adds the parts of dQ of every second step. A thread waits for each addition, so that one for all steps would not
// keep up.
static inline void add_parts(const Backward& a, unsigned base, unsigned bars, volatile int* tickets, unsigned two) {
  const unsigned p_full = bars + 16 + 16 * kQuerySlots + 32, p_empty = p_full + 16, t_full = p_empty + 24, t_empty = t_full + 16;
  int it = 0;
#pragma unroll 1
  for (int round = 0;; round++) {
    barrier_wait(t_full + 8 * (round & 1), round >> 1 & 1);
    const int ticket = tickets[round & 1];
    barrier_arrive(t_empty + 8 * (round & 1));
    if (ticket >= a.key_tiles * a.heads) break;
    const Tile t = tile_of(a, ticket);
    int m = a.row_tiles - 1;
#pragma unroll 1
    for (int step = 0; step < t.steps; step++, it++, m--) {
      if ((it & 1) != two) continue;
      const long at = (long)t.head * a.row_tiles + m;
      barrier_wait(p_full + 8 * two, it >> 1 & 1);
      const unsigned from = base + kAtParts + two * 2 * kPartBytes;
      if (t.number == 0) {
        store_bulk(a.parts + at * 8192, from, 2 * kPartBytes);
      } else {
        wait_turn(a.turns + at, t.number);
        fence_global();
        add_bulk(a.parts + at * 8192, from, 2 * kPartBytes);
      }
      commit_bulk();
      wait_bulk_read();
      barrier_arrive(p_empty + 8 * two);
      wait_bulk();
      fence_global();
      pass_turn(a.turns + at);
    }
  }
}

template <class Locate, class Out>
static inline void multiply_tiles(const Backward& a, unsigned base, unsigned bars, volatile int* tickets, int group, Locate locate,
                                  const Out& out) {
  const unsigned k_full = bars, v_full = bars + 8, q_full = bars + 16, q_empty = q_full + 8 * kQuerySlots,
                 g_full = q_empty + 8 * kQuerySlots, g_empty = g_full + 16, p_full = g_empty + 16, p_empty = p_full + 16,
                 kv_empty = p_empty + 16, t_full = kv_empty + 8, t_empty = t_full + 16;
  const int other = group ^ 1;
  const bool leader = (threadIdx.x & 127) == 0;
  const unsigned k_rows = tile_low(base + group * 8192, 16), v_rows = tile_low(base + kAtValues + group * 8192, 16),
                 q_low = tile_low(base + kAtQueries, kRows * 128), g_low = tile_low(base + kAtGrads, kRows * 128);
  // A warp group's part of dQ: its half of the columns (depth 128), or of the rows (depth 64).
  const unsigned k_depth = tile_low(base + (kDepth == 128 ? group * kKeys * 128 : 0), 16),
                 s_low = tile_low(base + kAtScores + (kDepth == 64 ? group * kKeys * 128 : 0), 16);
  int slot = 0, it = 0;
  unsigned phase = 0;
#pragma unroll 1
  for (int round = 0;; round++) {
    barrier_wait(t_full + 8 * (round & 1), round >> 1 & 1);
    // Made uniform, so that the tile's fields need no vector registers.
    const int ticket = __shfl_sync(~0u, tickets[round & 1], 0);
    if (ticket >= a.key_tiles * a.heads) break;
    const Tile tile = tile_of(a, ticket);
    const int key0 = tile.number * kKeys, steps = tile.steps;
    float dk[kDepth / 2], dv[kDepth / 2];
#pragma unroll
    for (int i = 0; i < kDepth / 2; i++) dk[i] = dv[i] = 0.0f;
    barrier_wait(k_full, round & 1);
    barrier_wait(v_full, round & 1);
    if (steps > 0) {
      float s[kRows / 2], dq[32];
      int m = a.row_tiles - 1;
      const auto issue_step_dq = [&](unsigned of) { issue_dq(dq, s_low + of * (kScoreBytes / 16), k_depth); };
      // Turns scores into weights, in place.
      const auto exponentials = [&] {
        const unsigned t = fresh_thread();
        const int key = key0 + t / 32 * 16 + (t & 31) / 4;
        const unsigned sums = base + kAtSums + slot * kRows * 4 + (t & 3) * 8;
#pragma unroll
        for (int i = 0; i < kRows / 8; i++) {
          const float2 l = shared_pair(sums + 32 * i);
#pragma unroll
          for (int e = 0; e < 4; e++) power(s[4 * i + e], a.scale, e & 1 ? l.y : l.x);
        }
        // This branch keeps the compiler from moving the exponentials below the wait that follows.
        if (key0 + kKeys > a.keys || kCausal && m * kRows + a.seen < key0 + group * 64 + 64) {
          const int row = m * kRows + 2 * (t & 3) + a.seen;
#pragma unroll
          for (int i = 0; i < kRows / 2; i++) {
            const int k = key + (i & 2) * 4;
            if (k >= a.keys || kCausal && k >= row + i / 4 * 8 + (i & 1)) s[i] = 0.0f;
          }
        }
      };
      // Replaces dP by P * (dP - delta). kLate uses the rounded P, since the registers of the f32 P are reused.
      const auto to_ds = [&](float (&dp)[kRows / 2], const unsigned (&p)[kRows / 4], unsigned two) {
        const unsigned deltas = base + kAtDeltas + two * kRows * 4 + (fresh_thread() & 3) * 8;
#pragma unroll
        for (int i = 0; i < kRows / 8; i++) {
          const float2 d = shared_pair(deltas + 32 * i);
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const unsigned pair = p[2 * i + e / 2];
            const float x = kLate ? (e & 1 ? high_of(pair) : low_of(pair)) : s[4 * i + e];
            dp[4 * i + e] = x * (dp[4 * i + e] - (e & 1 ? d.y : d.x));
          }
        }
      };
      const auto store_ds = [&](const unsigned (&ds)[kRows / 4], unsigned to) {
        const unsigned t = fresh_thread();
        const unsigned line = base + kAtScores + to * kScoreBytes + (t / 32 * 16 + (t & 15)) * 128,
                       chunk = (t / 16 & 1 ^ t & 7) << 4;
#pragma unroll
        for (int c = 0; c < kRows / 16; c++)
          store_matrices(line + c / 4 * (kKeys * 128) + (chunk ^ c % 4 * 32), ds[4 * c], ds[4 * c + 1], ds[4 * c + 2],
                         ds[4 * c + 3]);
        fence_async();
      };
      const auto store_dq = [&](int it) {
        const unsigned two = it & 1;
        barrier_wait(p_empty + 8 * two, it >> 1 & 1 ^ 1);
        const unsigned t = fresh_thread(),
                       to = base + kAtParts + two * 2 * kPartBytes + t / 128 * kPartBytes + (t & 127) * 16;
#pragma unroll
        for (int i = 0; i < 8; i++) store_four(to + i * 2048, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
        fence_async();
        barrier_arrive(p_full + 8 * two);
      };
      const auto advance = [&] {
        if (++slot == kQuerySlots) slot = 0, phase ^= 1;
      };
      const auto release_queries = [&] {  // those of the step before
        if (leader && it > 0) barrier_arrive(q_empty + 8 * (slot == 0 ? kQuerySlots - 1 : slot - 1));
      };
      barrier_wait(q_full + 8 * slot, phase);
      if constexpr (!kLate) {
        // Products in order, with the work that overlaps each: dP (packing P), dV (computing dS), the next step's S (storing
        // dS to shared memory), dQ and dK (the next step's exponentials, storing dQ to shared memory). Barrier 1: dS of both
        // groups is stored. Barrier 2 + group: the other group has read the dS that this group overwrites.
        issue_scores(s, k_rows, q_low + slot * (kQueryBytes / 16));
        wait_scores<0>(s);
        exponentials();
        named_arrive(2 + other, 256);
#pragma unroll 1
        for (int left = steps; left > 0; left--, it++) {
          const unsigned two = it & 1;
          float dp[kRows / 2];
          unsigned p[kRows / 4];
          barrier_wait(g_full + 8 * two, it >> 1 & 1);
          issue_scores(dp, v_rows, g_low + two * (kQueryBytes / 16));
          products_wait<1>();  // dK of the step before
          release_queries();
          pack_all(p, s);
          issue_rows(dv, p, g_low + two * (kQueryBytes / 16));
          wait_scores<1>(dp);
          to_ds(dp, p, two);
          settle(dp);
          // After the last step these scores are computed from old contents of the ring and are not used.
          const int now = slot;
          advance();
          if (left > 1) barrier_wait(q_full + 8 * slot, phase);
          issue_scores(s, k_rows, q_low + slot * (kQueryBytes / 16));
          products_wait<1>();  // dV: dS is packed into P's registers
          if (leader) barrier_arrive(g_empty + 8 * two);
          pack_all(p, dp);
          named_sync(2 + group, 256);
          store_ds(p, 0);
          named_sync(1, 256);
          issue_step_dq(0);
          issue_rows(dk, p, q_low + now * (kQueryBytes / 16));
          wait_scores<2>(s);
          m--;
          exponentials();
          wait_dq<1>(dq);
          if (left > 1) named_arrive(2 + other, 256);
          store_dq(it);
        }
      } else {
        // Products in order, with the work that overlaps each: S (nothing), the previous step's dQ (exponentials), dP (packing
        // P), dV (computing and storing dS), dK (the next step's S). Barrier 2 + 2 * group + slot: dS of the group is stored.
        // Barrier 6 + 2 * group + slot: the group has read dS of both groups. In the first step dQ is computed from
        // uninitialised memory and is not used.
#pragma unroll 1
        for (int step = 0; step < steps; step++, it++) {
          const unsigned two = it & 1, before = two ^ 1;
          float dp[kRows / 2];
          unsigned p[kRows / 4], ds[kRows / 4];
          if (step > 0) barrier_wait(q_full + 8 * slot, phase);
          issue_scores(s, k_rows, q_low + slot * (kQueryBytes / 16));
          if (step > 0) named_sync(2 + 2 * other + before, 256);
          issue_step_dq(before);
          wait_scores<1>(s);  // and dK of the step before
          release_queries();
          exponentials();
          wait_dq<0>(dq);
          if (step + 1 < steps) named_arrive(6 + 2 * group + two, 256);
          if (step > 0) store_dq(it - 1);
          barrier_wait(g_full + 8 * two, it >> 1 & 1);
          issue_scores(dp, v_rows, g_low + two * (kQueryBytes / 16));
          pack_all(p, s);
          issue_rows(dv, p, g_low + two * (kQueryBytes / 16));
          wait_scores<1>(dp);
          to_ds(dp, p, two);
          pack_all(ds, dp);
          if (step > 0) named_sync(6 + 2 * other + before, 256);
          store_ds(ds, two);
          named_arrive(2 + 2 * group + two, 256);
          issue_rows(dk, ds, q_low + slot * (kQueryBytes / 16));
          products_wait<1>();  // dV
          if (leader) barrier_arrive(g_empty + 8 * two);
          advance();
          m--;
        }
        named_sync(2 + 2 * other + (it - 1 & 1), 256);
        issue_step_dq(it - 1 & 1);
        wait_dq<0>(dq);
        store_dq(it - 1);
      }
      wait_rows<0>(dk);
      wait_rows<0>(dv);
    }
    // Both groups have read all of dS, K and V.
    named_sync(1, 256);
    if (leader) {
      barrier_arrive(t_empty + 8 * (round & 1));
      barrier_arrive(kv_empty);
    }
    const unsigned t = fresh_thread();
    const auto place = locate(tile.head);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int key = key0 + t / 32 * 16 + (t & 31) / 4 + h * 8;
      store_sums(out, 0, place, key < a.keys, key, 0, dk, h);
      store_sums(out, 1, place, key < a.keys, key, 0, dv, h);
    }
  }
}

template <class Locate, class Load, class Out>
static inline void attention_backward(const Backward& a, unsigned char* shared, unsigned long* bar_words, volatile int* tickets,
                                      Locate locate, Load load, const Out& out) {
  const unsigned base = shared_address(shared), bars = shared_address(bar_words);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    // Full, then empty: K and V (full alone); Q; gradients of o; parts of dQ; K and V (empty alone); tickets.
    int n = 0;
    const auto init = [&](int count) { barrier_init(bars + 8 * n++, count); };
    init(1), init(1);
    for (int i = 0; i < kQuerySlots; i++) init(1);
    for (int i = 0; i < kQuerySlots; i++) init(2);
    init(1), init(1), init(2), init(2);
    init(256), init(256), init(1), init(1);
    init(2);
    init(1), init(1), init(4), init(4);
    barriers_ready();
  }
  __syncthreads();
  if (group == 2) {
    fewer_registers<24>();
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 & 3, 0);
    if ((threadIdx.x & 31) != 0) return;
    if (warp == 0) load_tiles(a, base, bars, tickets, locate, load);
    if (warp == 1 || warp == 2) add_parts(a, base, bars, tickets, warp - 1);
    return;
  }
  more_registers<240>();
  multiply_tiles(a, base, bars, tickets, group, locate, out);
}
)";

}  // namespace

int64_t BackwardSizes::shared_bytes() const {
  const int64_t rings = query_slots() + 2;  // of queries and of gradients
  return 2 * keys * depth * 2 + rings * rows() * depth * 2 + int64_t{score_slots()} * keys * rows() * 2 +
         4 * 64 * 64 * 4 + rings * rows() * 4;
}

std::string flash_backward_sizes(const BackwardSizes& sizes, DType dtype, bool causal) {
  std::string out =
      cat("constexpr int kDepth = ", sizes.depth, ", kRows = ", sizes.rows(), ", kPart = kRows",
          ", kKeys = ", BackwardSizes::keys, ", kQuerySlots = ", sizes.query_slots(),
          ", kScoreSlots = ", sizes.score_slots(), ";\nconstexpr bool kCausal = ", causal ? "true" : "false",
          ", kLate = ", sizes.late() ? "true" : "false", ";\n");
  return cat(out, backward_numbers(dtype), kSizes);
}

std::string flash_backward_products(const BackwardSizes& sizes, DType dtype) {
  return cat(backward_machine(sizes.rows(), sizes.depth, dtype), kMain);
}

}  // namespace stridec::codegen::cuda
