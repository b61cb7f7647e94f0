// Emits attention by mma.sync: the loop of a tile over its keys, and the combination of results if warps and
// blocks split the keys.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_frame.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/codegen/emit_text.h"

namespace stridec::codegen::cuda {

// Addresses in tiles of lines in shared memory. place(): of byte `at` of a line. place_on(): that address
// moved by `lines` lines (a multiple of 8) and `at` bytes (a multiple of 32), from a place in the first 32
// bytes of a line. The thread-dependent part is then the same for all loads.
std::string place(const std::string& tile, int line_bytes, const std::string& line, const std::string& at);
std::string place_on(const std::string& place, int line_bytes, const std::string& lines,
                     const std::string& at);

// Prints products of 32-bit elements: of tf32, or of f32 (`twofold`) as sums of two tf32 values. A warp has
// 16 rows.
class WordProducts {
 public:
  WordProducts(KernelText& text, bool twofold) : text_(text), twofold_(twofold) {}

  // Declares `sums`, [columns / 8][4], and `small` for its small parts: the products over `depth` elements of
  // lines of `line_bytes`. The lanes' places are those of 16-bit elements: q_lane, of the rows, and k_lane,
  // of the columns.
  void print_products(const std::string& sums, const std::string& small, int columns, int depth,
                      int line_bytes, const std::string& q_lane, const std::string& k_lane);
  // Adds to o[across / 8][4] the products of weights and the lines of the tile. `weight`: a C expression of
  // the f32 at a place "[block of 8 columns][element]".
  using Weight = std::function<std::string(const std::string& place)>;
  void print_sums(const std::string& o, const Weight& weight, int columns, int across, int line_bytes,
                  const std::string& tile);

 private:
  void print_split(const std::string& name, int count);  // splits words into their tf32 part and the rest
  // Sums for two blocks of 8 columns, from fragments a and b; the arguments are C expressions in i, the
  // block.
  void print_pair(const std::string& sum, const std::string& small, const std::string& a,
                  const std::string& b);

  KernelText& text_;
  const bool twofold_;
};

// A warp owns 16 rows of the tile. Thread t of it owns, in each block of 8 keys or columns, two elements of
// row t / 4 and two 8 rows below. If warps split the keys, each owns all 16 rows of the tile and works alone,
// with its own queries and ring. At the end all warps of a cluster put their results into shared memory, and
// each combines some of the columns.
class MmaEmitter {
 public:
  MmaEmitter(const loop::Program& program, const loop::Nest& nest, const kernels::FlashPlan& plan, bool wide,
             bool assumes);

  std::optional<sym::Expr> condition() const {
    const std::optional<sym::Expr> able = wide_ ? f_.wide_condition() : sym::Expr(1);
    if (!able || !f_.plan.spread) return able;
    return sym::logical_and(*able, sym::le(units(), 0x3fff0000));  // units are counted in 32 bits
  }
  std::vector<loop::BufferId> buffers() const { return f_.buffers(); }

  DeviceKernel emit(const GpuTarget& target);

  DeviceKernel emit_spread(const GpuTarget& target);

 private:
  // Most parts that a block combines, and how many of them it loads at a time.
  static constexpr int kTogether = 32, kAhead = 16;

  // ---- spread: all blocks split all keys of all tiles; a unit is one step of a block's warps ----

  sym::Expr points() const { return f_.batches() * f_.row_tiles(); }
  sym::Expr units() const { return points() * all_steps(); }
  sym::Expr all_steps() const { return sym::ceildiv(f_.flash.keys.extent, stride()); }

  // How the work is split among blocks. On the host: all keys, and as many blocks as fit the device. On the
  // device: the visible keys, where memory determines them, and the launched blocks.
  struct Shares {
    sym::Expr points, steps, room;
    sym::Expr units() const { return points * steps; }
    sym::Expr even() const { return sym::max(1, sym::ceildiv(units(), room)); }
    // Units per block if each block works on one tile only.
    sym::Expr alone() const {
      return sym::max(1, sym::ceildiv(steps, sym::max(1, sym::floordiv(room, sym::max(1, points)))));
    }
    // A second tile costs a block about one step: it waits for its partial result of the first one to be
    // stored, and starts over.
    sym::Expr whole() const { return sym::logical_and(sym::le(points, room), sym::le(alone(), even() + 1)); }
    sym::Expr share() const { return sym::select(whole(), alone(), even()); }
    // Units from one tile to the next; the last ones may be empty.
    sym::Expr pitch() const { return sym::select(whole(), sym::ceildiv(steps, alone()) * alone(), steps); }
    sym::Expr blocks() const { return sym::ceildiv(points * pitch(), share()); }
  };
  Shares shares(const GpuTarget& target) const {
    return {points(), all_steps(), f_.plan.spread * target.multiprocessors};
  }
  // The slot of a part is the sum of its tile's and its block's number: from one part to the next, one of
  // them grows, or both.
  sym::Expr slots(const GpuTarget& target) const { return shares(target).blocks() + points(); }
  // Number of rounds of combining the parts of a tile until one is left.
  int spread_levels(const GpuTarget& target) const;
  // Floats per row of a block's partial result of a tile: sums of values, then the maximum and the sum of
  // weights.
  int own_pitch() const { return across_ + 8; }
  int part_pitch() const { return across_ + 4; }

  bool splits() const { return f_.plan.split > 0; }
  bool alone() const { return f_.plan.split > 0 || f_.plan.spread > 0; }  // warps work alone
  int warps() const { return f_.plan.warps; }
  int threads() const { return alone() ? 32 * warps() : f_.plan.rows * 2; }
  std::string barrier() const { return alone() ? "__syncwarp();" : "__syncthreads();"; }
  std::string own_rows() const { return alone() ? "0" : "warp * 16"; }
  // Keys from a warp's step to its next one.
  int stride() const { return keys() * f_.plan.parts(); }
  int keys() const { return f_.plan.keys; }

  void print_load(const char* name, const std::string& to, int lines, int padded, int64_t held,
                  const std::string& first, const std::string& count);

  // Loads a step's keys or values into the ring.
  enum class Factor { kKeys, kValues };
  void print_fill(Factor factor, const std::string& first, const std::string& stage);

  int warp_bytes() const { return static_cast<int>(kernels::warp_bytes(f_.plan, f_.flash)); }
  int key_bytes() const { return keys() * deep_line(); }
  int stage_bytes() const { return key_bytes() + keys() * across_line(); }
  // Bytes per line of queries and keys, and of values.
  int deep_line() const { return deep_ * f_.flash.bytes(); }
  int across_line() const { return across_ * f_.flash.bytes(); }
  bool words() const { return f_.flash.bytes() == 4; }
  const char* bits() const { return words() ? "unsigned" : "unsigned short"; }
  std::string declarations() const;

  void print(bool dependent);

  void print_operands();

  // Computes o, m and l over the keys from `start` to `stop`, for a warp or a block.
  void print_walk(const std::string& start, const std::string& stop);

  // A warp with its own ring waits for keys and values in turn, and requests those of a later step as soon as
  // either is used. Warps that share a ring wait for both, and request the next ones when all warps are done.
  void print_step(const std::string& stop);
  void print_first_requests(const std::string& start, const std::string& stop);
  // Loads the factors of the step that begins at key `first`, if that is before `stop`. They are one group of
  // copies, which is empty if nothing is loaded.
  void print_request(std::initializer_list<Factor> factors, const std::string& first, const std::string& stop,
                     const std::string& stage);
  void print_wait();  // until the factors that the step uses next are there
  void print_step_scores();
  // The first key of the warp's step that is `steps` ahead.
  std::string ahead(int steps) const { return cat("(n0 + ", steps * stride(), ")"); }

  void print_queries();

  void print_shares(const GpuTarget& target);

  // A block processes its units tile by tile; its warps take steps in turn.
  void print_spread(const GpuTarget& target);

  // Combines the results of the block's warps for a tile, as rows in shared memory.
  void print_own();

  // For a tile with parts of several blocks: the last block of a group to finish combines the parts of the
  // group, the last group those of all groups, until one block has the complete result. It sets `whole`, and
  // the other blocks are done. Parts are added in order, so the result does not depend on which block is
  // last.
  void print_gathering();

  // Prints the nest's statements after the sums, for a tile that the block has completely.
  void print_result();

  void open_parts(int count);

  // Prefetches the keys and values of a warp's first `steps` into L2. Preceding kernels may still write them,
  // since L2 sees these writes.
  void print_prefetch(const std::string& start, const std::string& stop, int steps);

  // Generates the load of warp or block `i`'s results for a thread's two rows (maxima and sums, and sums of
  // values by blocks of 8 columns): `to` is the destination, `from` the source.
  using Loading = std::function<void(const std::string& to, const std::string& from)>;
  // Declares the combined m and l, and kept[i][h], the weight of each partial result.
  void print_counts(int count, const Loading& load);
  // Declares total[4], the combined sums of the block of columns `own`. All loads are issued before the first
  // result is used.
  void print_total(int count, const Loading& load);

  // Every warp stores its maxima and sums for a thread's two rows, then its sums of values by blocks of 8
  // columns. The warps of a block combine them, one block of columns per warp; then the blocks of a cluster
  // do the same.
  void print_meeting();

  void print_leave();

  // Combines the results of a block's warps. `store_counts` is called once, with m and l declared;
  // `store_total` per block of 8 columns, with total declared.
  void print_block(const std::function<void()>& store_counts, const std::function<void()>& store_total);

  void print_products();

  // Turns the scores into weights under the running maximum, and rescales the earlier sums to it.
  void print_weights();

  void print_sums();

  WordProducts word_products() { return {text_, f_.flash.dtype == DType::kF32}; }

  FlashFrame f_;
  KernelText& text_;
  const bool wide_;
  const int deep_, across_;
};

// Device function load_lines<kLines, kPadded, kHeld, kThreads, kWide>(): copies lines of kHeld elements,
// `pitch` elements apart, to swizzled lines of kPadded elements in shared memory, zero-padded.
std::string_view load_lines_declarations();

// Device functions for tf32 values.
std::string_view words_declarations();

// Device functions that move four floats of a thread, in shared memory and in the workspace.
std::string_view fours_declarations();

// Device functions for reading other blocks of the cluster.
std::string_view peers_declarations();

}  // namespace stridec::codegen::cuda
