// Chains that are the attention of 16-bit floats, tf32 or f32, for kernels that never have a whole row of scores:
//
//   s[n] = f(sum over d of q[row, d] * k[n, d])         the first link, f pointwise
//   p[n] = exp(s[n] - max over n of s) / sum over n     row statements, in any of the forms that fusion leaves
//   o[j] = g(sum over n of p[n] * v[n, j])              the second link, g pointwise
//
// with keys n taken in blocks, a running maximum and a running sum (Milakov and Gimelshein, "Online normalizer
// calculation for softmax"; Dao, "FlashAttention-2"). p may be guarded by `isnan(p) ? 0 : p` and by a condition of the
// row, `row ? c : p`.
//
// What differs from the nest: the weights are rounded to the dtype of p before they are divided by their sum, which is
// f32, instead of after; scores stay f32 and are not rounded on the way; keys that a mask of indices hides from a whole
// block of rows are skipped, so that NaN and infinity behind such a mask do not reach the result.
//
// Tensor cores multiply f32 as well: each number is the sum of two of tf32, and of the four products of two such sums the
// one of the small parts, 2^-22 of the whole at most, is left out (Ootomo and Yokota, "Recovering single precision accuracy
// from Tensor Cores"; CUTLASS's "3xTF32"). Sums over the keys of a step are added up in f32 by the nest's own rounding, as
// tensor cores cut off where they add. An infinite factor gives NaN.
//
// Text form, of the kernels "flash.mma" and "flash.wgmma":
//   tile ROWS KEYS    of a block of threads, and of one step
//   split N           of "flash.mma", for few rows: N blocks of a cluster with kSplitWarps warps each share the keys; a
//                     warp takes every (N * kSplitWarps)th step for all rows of the tile
//   spread N WARPS STAGES      of "flash.mma", for few rows and many keys: N blocks of a multiprocessor, of so many warps,
//                     share all keys of all tiles, and the last to come brings together what they have of a tile; a warp
//                     has room for so many steps
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/chain.h"

namespace stridec::kernels {

struct Flash {
  // Points into `chain`: moves, but is no copy.
  Flash() = default;
  Flash(Flash&&) = default;
  Flash& operator=(Flash&&) = default;

  // A factor in memory: element offset == base + line * lines + depth, the base over batch dims and symbols.
  struct Operand {
    const loop::Load* load = nullptr;
    sym::Expr base, line;    // `line`: elements between neighbouring rows or keys
    bool scattered = false;  // of queries: the row occurs in the base, and `line` is 0
  };

  Chain chain;
  Contraction scores, values;    // of parts 0 and 2
  loop::Dim keys;                // of the first link; its extent is that of the second's sum
  loop::Dim columns;             // of the second link
  DType dtype = DType::kF16;     // of q, k, p and v: 16-bit floats, tf32 or f32
  int64_t depth = 0, width = 0;  // extents of the first sum and of `columns`
  Operand q, k, v;
  const loop::Store* score = nullptr;  // of part 0: what it stores is s
  bool biased = false;                 // f reads memory at every key
  bool guarded = false;                // isnan(p) ? 0 : p
  // row ? fixed : p, values of part 1, which its statements `row_statements` compute.
  std::optional<loop::ValueId> fixes, fixed;
  std::vector<const loop::Stmt*> row_statements;
  // A mask of indices hides the keys from here on, an expression of the row dim that does not fall as it grows, and of
  // lengths.
  std::optional<sym::Expr> visible;
  bool skips = false;  // and leaves them no weight
  // `skips` is so for rows that see a key, which memory says: for neighbouring rows where their first one sees one, and a
  // key that they all see is not hidden by anything else, says `others`, a bool of part 0 with its value where the key is
  // seen. It does not depend on rows.
  bool asks = false;
  std::optional<std::pair<loop::ValueId, bool>> others;
  // What stands in `visible` for integers that memory gives, values of part 0 that depend on neither rows nor keys.
  std::vector<std::pair<sym::Expr, loop::ValueId>> lengths;
  // f multiplies by this positive number, and hides what the mask of indices hides.
  std::optional<double> scale;
  // `skips` and `scale` are so where this holds, an expression of sizes: every row sees a key.
  std::optional<sym::Expr> given;
  // Of part 0, bools that say together what `visible` does: their values where the key is seen.
  std::vector<std::pair<loop::ValueId, bool>> shown;

  int bytes() const { return byte_size(dtype); }  // of an element of a factor
  // Later rows see more keys, so that tiles differ in what they skip.
  bool triangular() const { return skips && sym::depends_on(*visible, chain.row.var); }
  // What keys a tile skips comes from memory.
  bool asks_memory() const { return skips && (asks || !lengths.empty()); }
  const loop::Nest& scores_nest() const { return chain.parts[0].nest; }
  const loop::Nest& rows_nest() const { return chain.parts[1].nest; }
  const loop::Nest& values_nest() const { return chain.parts[2].nest; }
};

// Nothing where the nest is no such chain, of any floats and with any factors; `reason` says why. A finite number hides
// a key only from rows that see another one: `assumes` takes that for `given` where the sizes do not tell. What kernels
// take of dtypes, head sizes and factors (dtype, depth, width, q, k, v) is not looked at.
std::optional<Flash> match_attention(const loop::Program& program, const loop::Nest& nest, bool assumes,
                                     std::string* reason = nullptr);
// With all of it: nothing where the kernels of this file cannot take it.
std::optional<Flash> match_flash(const loop::Program& program, const loop::Nest& nest,
                                 std::string* reason = nullptr, bool assumes = true);

constexpr int kSplitRows = 16;  // of a tile whose keys warps share
constexpr int kMostSplit = 8;   // blocks of a cluster, wherever it runs
constexpr int kSplitWarps = 4;
constexpr int kSplitKeys = 32 * kSplitWarps;  // of a block, at least

struct FlashPlan {
  bool wgmma = false;
  int rows = 64, keys = 64;
  int split = 0, spread = 0;  // both 0: a warp goes through all keys
  int warps = kSplitWarps;    // of a block, where warps share keys
  int stages = 2;             // of "flash.mma": steps whose keys have room in shared memory
  // Warps that share the keys of a row, of one block where keys are spread.
  int parts() const { return spread ? warps : split ? split * warps : 1; }
};

bool is_flash(const loop::Schedule& schedule);
loop::Schedule to_schedule(const FlashPlan& plan);
FlashPlan to_flash_plan(const loop::Schedule& schedule);  // of an is_flash() schedule

constexpr int kMostDepth = 256;  // of `depth` and `width`
// Bytes of dynamic shared memory that a block needs, and of them a warp's own where warps share the keys.
int64_t shared_bytes(const FlashPlan& plan, const Flash& flash);
int64_t warp_bytes(const FlashPlan& plan, const Flash& flash);
// Of "flash.wgmma": blocks of keys, and of values, that are on their way at a time, and tiles of queries: the next
// tile's come while this one's are in use, where there is room.
int stages(const FlashPlan& plan, const Flash& flash);
int query_slots(const FlashPlan& plan, const Flash& flash);
// Whether registers hold a tile's scores and values, and shared memory two of its steps.
bool fits_warp_groups(const FlashPlan& plan, const Flash& flash);
std::span<const FlashPlan> mma_tiles(const Flash& flash);  // of "flash.mma", the largest first
// The largest of them within so many bytes of shared memory, of at most so many rows.
std::optional<FlashPlan> mma_plan(const Flash& flash, int64_t shared_bytes, int most_rows = 128);
// The one whose keys, about `keys` of them, so many blocks share: large steps, of which a warp has two at least.
std::optional<FlashPlan> split_plan(const Flash& flash, int64_t shared_bytes, int split, double keys);
// Of "spread": what a block has of a tile, in global memory.
int part_bytes(const Flash& flash);
// The one whose keys all blocks of the device share, and where that is worth what passes through memory.
std::optional<FlashPlan> spread_plan(const Flash& flash, int64_t shared_bytes);
sym::Expr worth_spreading(const FlashPlan& plan, const Flash& flash, const GpuTarget& target);
// What "flash.mma" does under a plan: the plan itself and, where sizes are symbols, those that take over from it where
// batch points are more or keys fewer, each under its condition, the last one without. Of a plan of "flash.wgmma": what
// is done for few rows, and where its own kernels cannot be.
struct FlashChoice {
  FlashPlan plan;
  sym::Expr condition;
};
// Of "flash.wgmma" alike: tiles of other sizes where they take less time in all, by waves of the device.
std::vector<FlashChoice> wgmma_choices(const FlashPlan& plan, const Flash& flash, const GpuTarget& target);
std::vector<FlashChoice> mma_choices(const FlashPlan& plan, const Flash& flash, const GpuTarget& target,
                                     const sym::Facts& facts);
// Elements of a line in shared memory that hold `count`; tensor cores take 16 or 8 at a time.
constexpr int64_t padded(int64_t count) { return (count + 15) / 16 * 16; }
// Slabs of 64 elements, 128 bytes, that the copy engine fills.
constexpr int slabs(int64_t count) { return static_cast<int>((count + 63) / 64); }

}  // namespace stridec::kernels
