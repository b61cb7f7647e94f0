// Matches and plans attention for kernels that never materialise a row of scores ("flash"). Types: 16-bit
// floats, tf32 and f32. The nest is a chain:
//
//   s[n] = f(sum over d of q[row, d] * k[n, d])         the first link, f pointwise
//   p[n] = exp(s[n] - max over n of s) / sum over n     row statements, in any form that fusion leaves
//   o[j] = g(sum over n of p[n] * v[n, j])              the second link, g pointwise
//   M = max over n of s; S = log(sum over n of exp(s[n] - M)); L = M + S
//                                                       optional: what a backward pass reads of the row
//                                                       (schedule/fusion/attention_nest.h)
//
// Keys n are processed in blocks with a running maximum and a running sum (Milakov and Gimelshein, "Online
// normalizer calculation for softmax"; Dao, "FlashAttention-2"). p may be guarded by `isnan(p) ? 0 : p` and
// by a condition of the row, `row ? c : p`. PyTorch bounds the maximum and the sum from below instead of
// guarding: `max(maximum, lowest)`, `max(sum, smallest)`.
//
// Differences from the nest: the weights are rounded to the dtype of p before, not after, the division by
// their sum, which is f32. Scores stay f32 without intermediate rounding. Keys that an index mask hides from
// a whole block of rows are skipped, so NaN and infinity in masked keys do not reach the result.
//
// Tensor cores multiply f32 as well: each value is split into a sum of two tf32 values. Of the four products
// the one of the small parts, at most 2^-22 of the total, is omitted (Ootomo and Yokota, "Recovering single
// precision accuracy from Tensor Cores"; CUTLASS's "3xTF32"). The sums over the keys of one step are added up
// in f32 with the nest's own rounding, since tensor cores truncate when they add. An infinite factor gives
// NaN.
//
// Text form, of the kernels "flash.mma" and "flash.wgmma":
//   tile ROWS KEYS    rows per thread block, and keys per step
//   split N           of "flash.mma", for few rows: the N blocks of a cluster, with kSplitWarps warps each,
//                     split the keys; a warp takes every (N * kSplitWarps)th step for all rows of the tile
//   spread N WARPS STAGES      of "flash.mma", for few rows and many keys: N blocks of WARPS warps per
//                     multiprocessor split all keys of all tiles, and the last block of a tile to finish
//                     combines the partial results; a warp buffers STAGES steps
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
  // Holds pointers into `chain`: movable, not copyable.
  Flash() = default;
  Flash(Flash&&) = default;
  Flash& operator=(Flash&&) = default;

  // A factor in memory: element offset == base + row or key * line + depth index. The base depends on batch
  // dims and symbols.
  struct Operand {
    const loop::Load* load = nullptr;
    sym::Expr base, line;    // `line`: elements between neighbouring rows or keys
    bool scattered = false;  // queries only: the base depends on the row, and `line` is 0
  };

  Chain chain;
  loop::Dim keys;                // dim of the first link; the second link's sum has the same extent
  loop::Dim columns;             // dim of the second link
  DType dtype = DType::kF16;     // of q, k, p and v: 16-bit floats, tf32 or f32
  int64_t depth = 0, width = 0;  // extents of the first sum and of `columns`
  Operand q, k, v;
  const loop::Store* score = nullptr;  // in part 0; its value is s
  bool biased = false;                 // f loads memory per key
  bool guarded = false;                // p has the form isnan(p) ? 0 : p
  // row ? fixed : p. `fixes` (the condition) and `fixed` are values of part 1; `row_statements` compute them.
  std::optional<loop::ValueId> fixes, fixed;
  std::vector<const loop::Stmt*> row_statements;
  // In part 1: stores of the row's maximum, the logarithm of its sum, or both added. Plans in which warps
  // split the keys do not support them.
  struct Statistic {
    const loop::Store* store;
    bool maximum, log_sum;
  };
  std::vector<Statistic> statistics;
  // Number of keys that the index mask leaves visible: an expression of the row dim, in which it does not
  // decrease, and of `lengths`. Keys from there on are hidden.
  std::optional<sym::Expr> visible;
  bool skips = false;  // hidden keys have weight 0
  // `skips` depends on memory: it holds for a group of neighbouring rows if the first of them sees a key, and
  // if a key that all of them see is not hidden by another condition. `others` is the whole mask
  // condition, a bool of part 0, and its value where the key is visible; beyond bounds on keys it does not
  // depend on rows. Without `others` there is no other condition.
  bool asks = false;
  std::optional<std::pair<loop::ValueId, bool>> others;
  // Variables of `visible` that stand for integers loaded from memory, with their values in part 0, which
  // depend on neither rows nor keys.
  std::vector<std::pair<sym::Expr, loop::ValueId>> lengths;
  // f is a multiplication by this positive number, apart from the index mask.
  std::optional<double> scale;
  // `skips` and `scale` require this condition on sizes: every row sees a key.
  std::optional<sym::Expr> given;
  // Bools of part 0 that together are equivalent to `visible`, with their values where the key is visible.
  std::vector<std::pair<loop::ValueId, bool>> shown;

  int bytes() const { return byte_size(dtype); }  // per element of a factor
  // Whether later rows see more keys, so that tiles skip different numbers of keys.
  bool triangular() const { return skips && sym::depends_on(*visible, chain.row.var); }
  // Whether the keys that a tile skips depend on memory.
  bool asks_memory() const { return skips && (asks || !lengths.empty()); }
  const Contraction& scores() const { return chain.parts[0].link->contraction; }
  const Contraction& values() const { return chain.parts[2].link->contraction; }
  const loop::Nest& scores_nest() const { return chain.parts[0].nest; }
  const loop::Nest& rows_nest() const { return chain.parts[1].nest; }
  const loop::Nest& values_nest() const { return chain.parts[2].nest; }
};

// Matches such a chain with any float types and any factors; otherwise sets `reason`. A mask with a finite
// value hides a key only from rows that see another key: with `assumes` that becomes the condition `given` if
// the sizes do not prove it. Does not check what kernels need of dtypes, head sizes and factors (dtype,
// depth, width, q, k, v).
std::optional<Flash> match_attention(const loop::Program& program, const loop::Nest& nest, bool assumes,
                                     std::string* reason = nullptr);
// Also checks and fills these; nothing if no kernel of this file can run the nest.
std::optional<Flash> match_flash(const loop::Program& program, const loop::Nest& nest,
                                 std::string* reason = nullptr, bool assumes = true);

constexpr int kSplitRows = 16;  // rows of a tile whose keys warps split
constexpr int kMostSplit = 8;   // most blocks of a cluster on any GPU
constexpr int kSplitWarps = 4;
constexpr int kSplitKeys = 32 * kSplitWarps;  // fewest keys of a block

struct FlashPlan {
  bool wgmma = false;
  int rows = 64, keys = 64;
  int split = 0, spread = 0;  // both 0: each warp processes all keys
  int warps = kSplitWarps;    // per block, where warps split the keys
  int stages = 2;             // of "flash.mma": steps whose keys are buffered in shared memory
  // Warps that split the keys of a row; with `spread` those of one block.
  int parts() const { return spread ? warps : split ? split * warps : 1; }
};

bool is_flash(const loop::Schedule& schedule);
loop::Schedule to_schedule(const FlashPlan& plan);
FlashPlan to_flash_plan(const loop::Schedule& schedule);  // requires is_flash(schedule)

constexpr int kMostDepth = 256;  // of `depth` and `width`
// Bytes of dynamic shared memory per block, and per warp where warps split the keys.
int64_t shared_bytes(const FlashPlan& plan, const Flash& flash);
int64_t warp_bytes(const FlashPlan& plan, const Flash& flash);
// Of "flash.wgmma": the number of key and value blocks in flight, and of query tiles: 2 if there is room to
// load the next tile's queries during the current tile, else 1.
int stages(const FlashPlan& plan, const Flash& flash);
int query_slots(const FlashPlan& plan, const Flash& flash);
// Whether the registers hold a tile's scores and values, and shared memory holds at least two steps.
bool fits_warp_groups(const FlashPlan& plan, const Flash& flash);
std::span<const FlashPlan> mma_tiles(const Flash& flash);  // of "flash.mma", the largest first
// The largest of these tiles that has at most `most_rows` rows and fits `shared_bytes` of shared memory.
std::optional<FlashPlan> mma_plan(const Flash& flash, int64_t shared_bytes, int most_rows = 128);
// The plan whose keys (about `keys`) are split over `split` blocks: the largest step that fits and leaves a
// warp at least two steps.
std::optional<FlashPlan> split_plan(const Flash& flash, int64_t shared_bytes, int split, double keys);
// Of "spread": bytes of a block's partial result of a tile in global memory.
int part_bytes(const Flash& flash);
// The plan whose keys are split over all blocks of the device, and the condition under which that outweighs
// the memory traffic of partial results.
std::optional<FlashPlan> spread_plan(const Flash& flash, int64_t shared_bytes);
sym::Expr worth_spreading(const FlashPlan& plan, const Flash& flash, const GpuTarget& target);
// One of several plans and the condition under which it applies; the first that holds is used, and the last
// has none. For a plan of "flash.mma", mma_choices() returns the plan itself and, where sizes are symbolic,
// those for more batch points or fewer keys. For a plan of "flash.wgmma" it returns the plans for few rows
// and for sizes that wgmma kernels do not support.
struct FlashChoice {
  FlashPlan plan;
  sym::Expr condition;
};
// For a plan of "flash.wgmma": tiles of other sizes where they take less total time, counted in waves of the
// device.
std::vector<FlashChoice> wgmma_choices(const FlashPlan& plan, const Flash& flash, const GpuTarget& target);
std::vector<FlashChoice> mma_choices(const FlashPlan& plan, const Flash& flash, const GpuTarget& target,
                                     const sym::Facts& facts);
// Elements of a line in shared memory that holds `count` elements; tensor cores consume 16 or 8 at a time.
constexpr int64_t padded(int64_t count) { return (count + 15) / 16 * 16; }
// Slabs of 64 16-bit elements (128 bytes), which TMA fills.
constexpr int slabs(int64_t count) { return static_cast<int>((count + 63) / 64); }

}  // namespace stridec::kernels
