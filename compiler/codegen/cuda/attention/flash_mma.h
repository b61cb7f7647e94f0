// Attention by mma.sync: a tile's walk over its keys, and what warps and blocks that share the keys do with their parts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/cuda/attention/flash_frame.h"
#include "compiler/codegen/device_kernel.h"

namespace stridec::codegen::cuda {

// A warp has 16 rows of the tile. Thread t of it has, of each block of 8 keys or columns, two in row t / 4 and two 8
// rows below. Where warps share the keys, each has the whole tile's 16 rows and works by itself, with queries and a ring of
// its own, until all of a cluster leave what they have in shared memory and each brings some columns together.
class MmaEmitter {
 public:
  MmaEmitter(const loop::Program& program, const loop::Nest& nest, const kernels::FlashPlan& plan, bool wide,
             bool assumes);

  std::optional<sym::Expr> condition() const {
    const std::optional<sym::Expr> able = wide_ ? f_.wide_condition() : sym::Expr(1);
    if (!able || !f_.plan.spread) return able;
    return sym::logical_and(*able, sym::le(units(), 0x3fff0000));  // they are counted in 32 bits
  }
  std::vector<loop::BufferId> buffers() const { return f_.buffers(); }

  DeviceKernel emit(const GpuTarget& target);

  DeviceKernel emit_spread(const GpuTarget& target);

 private:
  // Parts that a block brings together at most, and so many of them at a time.
  static constexpr int kTogether = 32, kAhead = 16;

  // ---- spread: all blocks of the device share all keys of all tiles, in units of a step of a block's warps ----
  sym::Expr points() const { return f_.batches() * f_.row_tiles(); }
  sym::Expr units() const { return points() * all_steps(); }
  sym::Expr all_steps() const { return sym::ceildiv(f_.flash.keys.extent, stride()); }

  // What the blocks share: as the host sees it all keys and as many blocks as there is room for, on the device those that
  // are seen, where memory says which, and as many blocks as there are.
  struct Shares {
    sym::Expr points, steps, room;
    sym::Expr units() const { return points * steps; }
    sym::Expr even() const { return sym::max(1, sym::ceildiv(units(), room)); }
    // Units of a block that has no other tile, so many for each tile.
    sym::Expr alone() const {
      return sym::max(1, sym::ceildiv(steps, sym::max(1, sym::floordiv(room, sym::max(1, points)))));
    }
    // A second tile costs a block about as much as a step: it waits for what it left of the first, and begins anew.
    sym::Expr whole() const { return sym::logical_and(sym::le(points, room), sym::le(alone(), even() + 1)); }
    sym::Expr share() const { return sym::select(whole(), alone(), even()); }
    // Units from a tile to the next, whose last ones may be empty.
    sym::Expr pitch() const { return sym::select(whole(), sym::ceildiv(steps, alone()) * alone(), steps); }
    sym::Expr blocks() const { return sym::ceildiv(points * pitch(), share()); }
  };
  Shares shares(const GpuTarget& target) const {
    return {points(), all_steps(), f_.plan.spread * target.multiprocessors};
  }
  // Parts are numbered by the sum of their tile's and their block's numbers: from one to the next either grows, or both.
  sym::Expr slots(const GpuTarget& target) const { return shares(target).blocks() + points(); }
  // How often parts of a tile are brought together until one is left.
  int spread_levels(const GpuTarget& target) const;
  // From a row to the next of what a block has of a tile: sums of values, then the maximum and the sum of weights.
  int own_pitch() const { return across_ + 8; }
  int part_pitch() const { return across_ + 4; }

  bool splits() const { return f_.plan.split > 0; }
  bool alone() const { return f_.plan.split > 0 || f_.plan.spread > 0; }  // warps work by themselves
  int warps() const { return f_.plan.warps; }
  int threads() const { return alone() ? 32 * warps() : f_.plan.rows * 2; }
  std::string barrier() const { return alone() ? "__syncwarp();" : "__syncthreads();"; }
  std::string own_rows() const { return alone() ? "0" : "warp * 16"; }
  // From a step to the next of the same warp.
  int stride() const { return keys() * f_.plan.parts(); }
  int keys() const { return f_.plan.keys; }

  void print_load(const char* name, const std::string& to, int lines, int padded, int64_t held,
                  const std::string& first, const std::string& count);

  // Loads of a step's keys or values into the ring.
  enum class Factor { kKeys, kValues };
  void print_fill(Factor factor, const std::string& first, const std::string& stage);

  int warp_bytes() const { return static_cast<int>(kernels::warp_bytes(f_.plan, f_.flash)); }
  int key_bytes() const { return keys() * deep_line(); }
  int stage_bytes() const { return key_bytes() + keys() * across_line(); }
  // Bytes of a line of queries and keys, and of values.
  int deep_line() const { return deep_ * f_.flash.bytes(); }
  int across_line() const { return across_ * f_.flash.bytes(); }
  // Byte `at` of a tile's line in shared memory, and from a place among the first 32 bytes of a line so many lines, a
  // multiple of 8, and bytes, a multiple of 32, on: what depends on the thread is the same for all that it loads.
  static std::string place(const std::string& tile, int line_bytes, const std::string& line,
                           const std::string& at);
  static std::string place_on(const std::string& place, int line_bytes, const std::string& lines,
                              const std::string& at);
  bool words() const { return f_.flash.bytes() == 4; }
  const char* bits() const { return words() ? "unsigned" : "unsigned short"; }
  std::string declarations() const;

  void print(bool dependent);

  void print_operands();

  // o, m and l of the keys from `start` to `stop`, a warp's or a block's.
  void print_walk(const std::string& start, const std::string& stop);

  void print_queries();

  void print_shares(const GpuTarget& target);

  // A block goes through its units, tile by tile. Its warps take steps by turns.
  void print_spread(const GpuTarget& target);

  // What the block's warps left of a tile as rows in shared memory.
  void print_own();

  // Of a tile that several blocks have parts of: the last of a group of blocks brings theirs together, the last of groups
  // what these have, until one has all of it: it is `whole`, and the others are done. Parts are added in their order, so
  // that it does not matter which comes last.
  void print_gathering();

  // The nest's statements behind the sums of a tile that the block has all of.
  void print_result();

  void open_parts(int count);

  // Brings the keys and values of a warp's first `steps` into L2, which the kernels before this one may still write: what
  // they do to L2 is seen there.
  void print_prefetch(const std::string& start, const std::string& stop, int steps);

  // What `count` warps or blocks have of a thread's two rows, maxima and sums, and sums of values by blocks of 8 columns:
  // says where part `i` is loaded to and where from.
  using Loading = std::function<void(const std::string& to, const std::string& from)>;
  // Declares m and l of all of them, and kept[i][h], what each counts for.
  void print_counts(int count, const Loading& load);
  // Declares their total[4] of the block `own`. All are on their way before the first is used.
  void print_total(int count, const Loading& load);

  // Every warp leaves its maxima and sums, of a thread's two rows, then its sums of values by blocks of 8 columns. The warps
  // of a block of threads bring them together, a block of columns each, and then those of a cluster likewise.
  void print_meeting();

  void print_leave();

  // What a block's warps left: `store_counts` finds m and l, once, `store_total` total, by blocks of 8 columns.
  void print_block(const std::function<void()>& store_counts, const std::function<void()>& store_total);

  void print_products();

  // The scores become weights under the maximum so far; what was summed before is brought down to it.
  void print_weights();

  void print_sums();

  // The same of tf32, and of f32 as sums of two of tf32.
  void print_word_products();
  void print_word_sums();
  void print_split(const std::string& name, int count);  // of words, into what tf32 has of them and the rest
  // Sums of two blocks of 8 columns, C expressions with i for the block, by fragments a and b.
  void print_pair(const std::string& sum, const std::string& small, const std::string& a,
                  const std::string& b);
  bool twofold() const { return f_.flash.dtype == DType::kF32; }

  FlashFrame f_;
  KernelText& text_;
  const bool wide_;
  const int deep_, across_;
};

// Numbers of tf32.
std::string_view words_declarations();

// Four numbers of a thread, in shared memory and in the workspace.
std::string_view fours_declarations();

// What a block asks of the others of its cluster.
std::string_view peers_declarations();

}  // namespace stridec::codegen::cuda
