#include "compiler/codegen/cuda/attention/flash_wgmma.h"

#include <functional>
#include <set>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_frame.h"
#include "compiler/codegen/cuda/attention/flash_source.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/matrix/matrix.h"
#include "compiler/codegen/cuda/matrix/matrix_wgmma.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::Flash;
using kernels::slabs;
using sym::Expr;

class Emitter {
 public:
  Emitter(const loop::Program& program, const loop::Nest& nest, const kernels::FlashPlan& plan, bool assumes)
      : f_(program, nest, plan, assumes, true),
        text_(f_.text),
        groups_(plan.rows / 64),
        keys_(plan.keys),
        deep_(static_cast<int>(kernels::padded(f_.flash.depth))),
        across_(static_cast<int>(kernels::padded(f_.flash.width))),
        stages_(kernels::stages(plan, f_.flash)),
        slots_(kernels::query_slots(plan, f_.flash)) {
    const sym::Facts early = kernels::facts_in(program, f_.flash.scores_nest(), f_.flash.scores()),
                     late = kernels::facts_in(program, f_.flash.values_nest(), f_.flash.values());
    q_ = flash_source(f_.flash.dtype, f_.flash.chain.batch, f_.flash.q, f_.flash.depth,
                      f_.flash.chain.row.extent, 64, early);
    k_ = flash_source(f_.flash.dtype, f_.flash.chain.batch, f_.flash.k, f_.flash.depth, f_.flash.keys.extent,
                      keys_, early);
    v_ = flash_source(f_.flash.dtype, f_.flash.chain.batch, f_.flash.v, f_.flash.width, f_.flash.keys.extent,
                      keys_, late);
  }

  std::optional<DeviceChoice> emit(const GpuTarget& target) {
    const auto condition = f_.wide_condition();
    if (!condition || condition->is_const(0) || !q_ || !k_ || !v_) return std::nullopt;
    DeviceChoice choice;
    std::vector<Expr> conditions = {*condition};
    for (const FlashSource* source : {&*q_, &*k_, &*v_})
      for (Expr extent : source->map.dims) {
        conditions.push_back(sym::ge(extent, 1));
        conditions.push_back(sym::le(extent, 0x7fff0000));
      }
    choice.condition = sym::simplify(sym::logical_and(conditions), f_.program.facts);
    choice.aligned = f_.buffers();
    print(target.dependent_launch);
    Geometry geometry{.grid = {sym::min(tiles(), target.multiprocessors), 1, 1},
                      .threads = (groups_ + 1) * 128,
                      .blocks_sm = 1};
    geometry.shared_bytes = kernels::shared_bytes(f_.plan, f_.flash);
    geometry.dependent_launch = target.dependent_launch;
    geometry.maps = {q_->map, k_->map, v_->map};
    if (draws()) geometry.counters = 1;
    std::set<size_t> dims;
    for (const TensorMap& map : geometry.maps) dims.insert(map.dims.size());
    std::string declarations = memory_declarations() + barrier_declarations();
    for (size_t count : dims) declarations += box_declarations(count);
    declarations += flash_products(keys_, across_, f_.flash.dtype) + flash_declarations(f_.flash.dtype);
    choice.launches.push_back(finish(text_, std::move(geometry), declarations));
    return choice;
  }

 private:
  Expr tiles() const { return f_.batches() * f_.row_tiles(); }

  // Whether tiles differ in the keys that they skip. A block that is done then draws the next tile: the
  // loader draws its number and stores it next to the queries. Otherwise blocks take tiles in turn.
  bool draws() const { return f_.flash.skips; }
  int first_ticket() const { return 4 * stages_ + 2 * slots_ * groups_; }
  std::string ticket() const { return cat("bars[", first_ticket(), " + q_slot * ", groups_, " + group]"); }

  int producer_registers() const { return groups_ == 2 ? 40 : groups_ == 3 ? 32 : 24; }
  int worker_registers() const { return groups_ == 2 ? 232 : groups_ == 3 ? 160 : 112; }

  // Two or three groups alternate, so that one's products overlap another's softmax. Four groups run
  // independently, and each skips blocks of keys that none of its rows see.
  bool passes() const { return groups_ > 3 && f_.flash.triangular(); }
  bool turns() const { return groups_ > 1 && !passes(); }
  // A warp that skips has done nothing that the others of its group wait for, so each warp releases for
  // itself.
  int releases() const { return passes() ? 4 * groups_ : groups_; }

  int q_bytes() const { return 8192 * slabs(f_.flash.depth); }  // per group
  int k_bytes() const { return keys_ * 128 * slabs(f_.flash.depth); }
  int v_bytes() const { return keys_ * 128 * slabs(f_.flash.width); }

  void print(bool dependent) {
    text_.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text_.line(cat("__shared__ alignas(8) unsigned long bars[",
                   first_ticket() + (draws() ? slots_ * groups_ : 0), "];"));
    text_.line("const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);");
    text_.line(cat("const unsigned q_tiles = shared_address(shared), k_ring = q_tiles + ",
                   slots_ * groups_ * q_bytes(), ", v_ring = k_ring + ", stages_ * k_bytes(), ";"));
    text_.line(cat("const unsigned k_full = shared_address(bars), k_empty = k_full + ", 8 * stages_,
                   ", v_full = k_empty + ", 8 * stages_, ", v_empty = v_full + ", 8 * stages_,
                   ", q_full = v_empty + ", 8 * stages_, ", q_empty = q_full + ", 8 * slots_ * groups_, ";"));
    text_.open("if (threadIdx.x == 0)");
    text_.open(cat("for (int i = 0; i < ", stages_, "; ++i)"));
    text_.line("barrier_init(k_full + 8 * i, 1);");
    text_.line("barrier_init(v_full + 8 * i, 1);");
    text_.line(cat("barrier_init(k_empty + 8 * i, ", releases(), ");"));
    text_.line(cat("barrier_init(v_empty + 8 * i, ", releases(), ");"));
    text_.close();
    text_.open(cat("for (int i = 0; i < ", slots_ * groups_, "; ++i)"));
    text_.line("barrier_init(q_full + 8 * i, 1);");
    text_.line("barrier_init(q_empty + 8 * i, 1);");
    text_.close();
    text_.line("barriers_ready();");
    text_.close();
    text_.line("__syncthreads();");
    text_.line(cat("const unsigned row_tiles = (unsigned)", text_.size(f_.row_tiles()),
                   ", tiles = (unsigned)", text_.size(tiles()), ";"));
    if (f_.flash.triangular())
      text_.line(cat("const unsigned batches = (unsigned)", text_.size(f_.batches()), ", behind = (",
                     kLastTiles,
                     " * gridDim.x + row_tiles - 1) / row_tiles, last_batches = batches < behind ? batches : "
                     "behind, ahead = (batches - last_batches) * row_tiles;"));
    if (dependent) text_.line("launch_dependents();");
    text_.open(cat("if (group == ", groups_, ")"));
    if (groups_ > 1)
      text_.line(cat("asm volatile(\"setmaxnreg.dec.sync.aligned.u32 ", producer_registers(), ";\");"));
    text_.open("if (threadIdx.x % 128 == 0)");
    if (dependent) text_.line("wait_predecessor();");
    print_loader();
    text_.close();
    text_.close(" else {");
    if (groups_ > 1)
      text_.line(cat("asm volatile(\"setmaxnreg.inc.sync.aligned.u32 ", worker_registers(), ";\");"));
    if (dependent) text_.line("wait_predecessor();");
    print_worker();
    text_.line("}");
  }

  // Declares a tile and its number of key blocks, at least one. Tiles of rows of one batch point are
  // consecutive, alternating long and short ones, so that its keys and values are in L2. The last tiles, a
  // few for each block, are ordered by decreasing length.
  static constexpr int kLastTiles = 3;
  void print_tile(const std::string& tile) {
    if (f_.flash.triangular()) {
      text_.line(cat("const bool closing = ", tile, " >= ahead;"));
      text_.line(
          cat("const unsigned place = closing ? ", tile, " - ahead : ", tile,
              ", run = closing ? last_batches : row_tiles, major = place / run, minor = place % run;"));
      f_.print_tile("closing ? batches - last_batches + minor : major",
                    "row_tiles - 1 - (closing ? major : minor % 2 ? row_tiles - 1 - minor / 2 : minor / 2)");
    } else {
      f_.print_tile(cat(tile, " / row_tiles"), cat(tile, " % row_tiles"));
    }
    text_.line(cat("const int blocks = key_end > 0 ? (int)((key_end + ", keys_ - 1, ") / ", keys_, ") : 1;"));
  }

  std::string coordinates(const FlashSource& source) {
    std::string out;
    for (Expr index : source.coordinates) out += cat(", (int)(", f_.batch_index(index), ")");
    return out;
  }

  // A copy of lines of a tensor to shared memory, as one box for each 64 elements of a line.
  struct BoxCopy {
    const FlashSource& source;
    const char* map;
    std::string to, full;  // the address in shared memory, and the barrier that counts the bytes
    std::string line;      // the first one
    int lines;
    int64_t depth;      // elements of a line
    std::string batch;  // further coordinates
  };
  void print_boxes(const BoxCopy& copy) {
    for (int slab = 0; slab < slabs(copy.depth); ++slab)
      text_.line(cat("copy_box", copy.source.map.dims.size(), "(", copy.to, " + ", slab * copy.lines * 128,
                     ", &", copy.map, ", ", copy.full, ", ", slab * 64, ", ", copy.line, copy.batch, ");"));
  }

  void print_ring(const char* slot, const char* phase, int count) {
    if (count == 1) return text_.line(cat(phase, " ^= 1;"));
    text_.open(cat("if (++", slot, " == ", count, ")"));
    text_.line(cat(slot, " = 0;"));
    text_.line(cat(phase, " ^= 1;"));
    text_.close();
  }

  void print_fetch(bool keys, const std::string& block, const std::string& batch) {
    const std::string name = keys ? "k" : "v";
    text_.line(cat("barrier_wait(", name, "_empty + 8 * ", name, "_slot, ", name, "_phase);"));
    text_.line(
        cat("barrier_expect(", name, "_full + 8 * ", name, "_slot, ", keys ? k_bytes() : v_bytes(), ");"));
    print_boxes({.source = keys ? *k_ : *v_,
                 .map = keys ? "map1" : "map2",
                 .to = cat(name, "_ring + ", name, "_slot * ", keys ? k_bytes() : v_bytes()),
                 .full = cat(name, "_full + 8 * ", name, "_slot"),
                 .line = cat("(", block, ") * ", keys_),
                 .lines = keys_,
                 .depth = keys ? f_.flash.depth : f_.flash.width,
                 .batch = batch});
    print_ring(keys ? "k_slot" : "v_slot", keys ? "k_phase" : "v_phase", stages_);
  }

  void print_queries() {
    text_.open(cat("for (int w = 0; w < ", groups_, "; ++w)"));
    text_.line(cat("const int slot = q_slot * ", groups_, " + w;"));
    text_.line("barrier_wait(q_empty + 8 * slot, q_phase);");
    if (draws()) text_.line(cat("bars[", first_ticket(), " + slot] = tile;"));
    text_.line(cat("barrier_expect(q_full + 8 * slot, ", q_bytes(), ");"));
    print_boxes({.source = *q_,
                 .map = "map0",
                 .to = cat("q_tiles + slot * ", q_bytes()),
                 .full = "q_full + 8 * slot",
                 .line = "(int)first_row + 64 * w",
                 .lines = 64,
                 .depth = f_.flash.depth,
                 .batch = coordinates(*q_)});
    text_.close();
    print_ring("q_slot", "q_phase", slots_);
  }

  // A tile's last values are multiplied next to the next tile's first keys, and are loaded in that order.
  void print_loader() {
    text_.line("int k_slot = 0, v_slot = 0, q_slot = 0;");
    text_.line("unsigned k_phase = 1, v_phase = 1, q_phase = 1;");
    std::string last;
    for (size_t i = 0; i < v_->coordinates.size(); ++i) last += cat(", last", i);
    text_.line(cat("int last = 0", last, ";"));
    const auto print_last = [&] {
      text_.open("if (last)");
      print_fetch(false, "0", last);
      text_.close();
    };
    if (draws()) {
      text_.open("for (unsigned tile = blockIdx.x, next; tile < tiles; tile = next)");
    } else {
      text_.open("for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x)");
    }
    print_tile("tile");
    if (slots_ > 1) print_queries();
    print_fetch(true, "blocks - 1", coordinates(*k_));
    print_last();
    if (slots_ == 1) print_queries();
    // Draws as late as the preceding copies can hide its latency, so that remaining tiles go to the block
    // that is done first. The block with the longest of two tiles also gets the shortest one.
    const auto print_draw = [&](const char* condition) {
      if (draws())
        text_.line(cat("if (", condition,
                       ") next = tiles > 2 * gridDim.x ? gridDim.x + atomicInc(counters, tiles - 1) : tile < "
                       "gridDim.x ? "
                       "2 * gridDim.x - 1 - tile : tiles;"));
    };
    print_draw("blocks < 2");
    text_.open("for (int block = blocks - 2; block >= 0; --block)");
    print_draw("block == 0");
    print_fetch(true, "block", coordinates(*k_));
    print_fetch(false, "block + 1", coordinates(*v_));
    text_.close();
    text_.line("last = 1;");
    for (size_t i = 0; i < v_->coordinates.size(); ++i)
      text_.line(cat("last", i, " = (int)(", f_.batch_index(v_->coordinates[i]), ");"));
    text_.close();
    print_last();
    if (!draws()) return;
    text_.open(cat("for (int w = 0; w < ", groups_, "; ++w)"));
    text_.line(cat("const int slot = q_slot * ", groups_, " + w;"));
    text_.line("barrier_wait(q_empty + 8 * slot, q_phase);");
    text_.line(cat("bars[", first_ticket(), " + slot] = tiles;"));
    text_.line("barrier_arrive(q_full + 8 * slot);");
    text_.close();
  }

  // ---- warp groups that multiply: thread t of a group owns, in each 8 keys or columns, two elements of row
  // t / 4 of its warp's 16 rows, and two 8 rows below ----

  void print_worker() {
    print_worker_state();
    print_first_tile();
    print_pack();
    print_clear();
    text_.line("#pragma unroll 1");
    text_.open("for (;;)");
    print_other_blocks();
    text_.line(cat("if (leader) barrier_arrive(q_empty + 8 * (q_slot * ", groups_, " + group));"));
    print_ring("q_slot", "q_phase", slots_);
    print_next();
    text_.line("if (next >= tiles) break;");
    text_.line("const float before[2] = {l[0], l[1]};");
    if (!f_.flash.statistics.empty()) text_.line("const float most_before[2] = {m[0], m[1]};");
    if (passes()) text_.line("int passed;");
    print_next_tile();
    text_.line("wait_values<0>(o);");
    print_release("v");
    print_result("before", "most_before");
    print_pass_values("passed");
    print_pack();
    print_clear();
    text_.line("tile = next;");
    text_.close();
    print_rescale();
    text_.line("barrier_wait(v_full + 8 * v_slot, v_phase);");
    print_value_products();
    text_.line("wait_values<0>(o);");
    print_result("l", "m");
  }

  void print_worker_state() {
    text_.line("const int thread = threadIdx.x, lane_id = thread % 32;");
    text_.line("const bool leader = thread % 128 == 0;");
    text_.line(
        "const int group_row = group * 64, warp_row = group_row + thread / 32 % 4 * 16 + lane_id / 4;");
    text_.line(
        cat("const unsigned q_low = (((q_tiles + group * ", q_bytes(),
            ") & 0x3ffff) >> 4) | 1 << 16, k_low = ((k_ring & 0x3ffff) >> 4) | 1 << 16, v_low = ((v_ring "
            "& 0x3ffff) >> 4) | ",
            keys_ * 128 / 16, " << 16;"));
    text_.line("int k_slot = 0, v_slot = 0, q_slot = 0;");
    text_.line("unsigned k_phase = 0, v_phase = 0, q_phase = 0;");
    if (turns()) text_.line("if (group == 0) named_arrive(1, 256);");
    text_.line("unsigned tile = blockIdx.x;");
    text_.line("if (tile >= tiles) return;");
    text_.line(cat("float o[", across_ / 2, "], s[", keys_ / 2, "], m[2], l[2], kept[2];"));
    text_.line(cat("unsigned p[", keys_ / 4, "];"));
  }

  // Declares the tile, the thread's rows and the group's number of key blocks.
  void print_tile_rows(const std::string& tile) {
    print_tile(tile);
    f_.print_rows("warp_row");
    print_own();
  }

  // Computes the softmax weights of the first tile's first block of keys. A tile takes its blocks of keys
  // from the last one to the first.
  void print_first_tile() {
    text_.open("");
    print_tile_rows("tile");
    print_wait_queries();
    text_.line("barrier_wait(k_full + 8 * k_slot, k_phase);");
    print_pass_keys();
    print_key_products();
    print_first_weights(0);
    print_pass_values("blocks - own");
    text_.close();
  }

  // Computes those of the next tile while this tile's last values are multiplied.
  void print_next_tile() {
    text_.open("");
    print_tile_rows("next");
    if (passes()) text_.line("passed = blocks - own;");
    if (!draws()) print_wait_queries();
    text_.line("barrier_wait(k_full + 8 * k_slot, k_phase);");
    print_pass_keys();
    print_both_products();
    print_first_weights(1);
    text_.close();
  }

  // Turns a tile's first scores into weights. `pending`: products issued after those of the scores.
  void print_first_weights(int pending) {
    print_first_keys();
    text_.line(cat("wait_keys<", pending, ">(s);"));
    print_release("k");
    print_softmax(FlashFrame::Keys::kEdge, true);
    text_.line("if (own > 1) barrier_wait(k_full + 8 * k_slot, k_phase);");
  }

  // Processes the tile's other blocks of keys, from the last one to the first.
  void print_other_blocks() {
    text_.open("");
    print_tile_rows("tile");
    text_.line("int block = own - 2;");
    print_pass_tile();
    if (f_.flash.visible) {
      f_.print_seen("group_row");
      text_.line(cat("const int clear = keys_seen / ", keys_, " < blocks ? (int)(keys_seen / ", keys_,
                     ") : blocks;"));
      print_steps("block >= clear && block >= 0", FlashFrame::Keys::kAll);
    }
    print_steps("block >= 0", FlashFrame::Keys::kSeen);
    text_.close();
  }

  // Declares the number of the block's next tile.
  void print_next() {
    if (!draws()) return text_.line("const unsigned next = tile + gridDim.x;");
    print_wait_queries();
    text_.line(cat("const unsigned next = __shfl_sync(~0u, (unsigned)", ticket(), ", 0);"));
  }

  void print_wait_queries() {
    text_.line(cat("barrier_wait(q_full + 8 * (q_slot * ", groups_, " + group), q_phase);"));
  }

  // Declares the number of key blocks that rows of this group see, at least one; the group skips the others
  // of the tile. A group without rows uses the tile's last row.
  void print_own() {
    if (!passes()) return text_.line("const int own = blocks;");
    f_.print_end("own_end", "(group_row + 63 < row_count ? group_row + 63 : row_count - 1)");
    text_.line(cat("int own = own_end > 0 ? (int)((own_end + ", keys_ - 1, ") / ", keys_, ") : 1;"));
    // The ring of values has to hold what is loaded meanwhile.
    const int most = (groups_ - 1) * 64 / keys_;
    text_.line(cat("own = own < blocks - ", most, " ? blocks - ", most, " : own;"));
  }

  void print_pass_keys() {
    if (!passes()) return;
    text_.line("#pragma unroll 1");
    text_.open("for (int i = own; i < blocks; ++i)");
    print_release("k");
    text_.line("barrier_wait(k_full + 8 * k_slot, k_phase);");
    text_.close();
  }

  void print_pass_values(const std::string& count) {
    if (!passes()) return;
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int i = ", count, "; i > 0; --i)"));
    text_.line("barrier_wait(v_full + 8 * v_slot, v_phase);");
    print_release("v");
    text_.close();
  }

  // A group without rows skips all but the first block.
  void print_pass_tile() {
    if (!passes()) return;
    text_.line("#pragma unroll 1");
    text_.open("for (; group_row >= row_count && block >= 0; --block)");
    print_release("k");
    text_.line("if (block > 0) barrier_wait(k_full + 8 * k_slot, k_phase);");
    text_.line("barrier_wait(v_full + 8 * v_slot, v_phase);");
    print_release("v");
    text_.close();
  }

  void print_clear() {
    text_.line("#pragma unroll");
    text_.line(cat("for (int i = 0; i < ", across_ / 2, "; ++i) o[i] = 0;"));
  }

  // Stores the rows of `tile`, whose sums of weights are `sums`, relative to the maxima `most`.
  void print_result(const std::string& sums, const std::string& most) {
    text_.open("");
    text_.line(cat("const float total[2] = {", sums, "[0], ", sums, "[1]};"));
    print_tile("tile");
    f_.print_rows("warp_row");
    f_.print_factors("warp_row", most, "total");
    f_.print_values(across_ / 8, "warp_row", true, [](const std::string& j, const std::string& e) {
      return cat("o[", j, " * 4 + ", e, "]");
    });
    text_.close();
  }

  // The first key of a block. If scores read memory, the compiler must not see that it is an induction
  // variable: it would keep an address per score from block to block.
  void print_place(const char* block) {
    text_.line(cat("int64_t n0 = (int64_t)(", block, ") * ", keys_, ";"));
    if (f_.flash.biased) text_.line("asm volatile(\"\" : \"+l\"(n0));");
  }

  void print_first_keys() {
    print_place("own - 1");
    text_.line(cat("const int64_t keys_left = ", text_.size(f_.flash.keys.extent), " - n0;"));
    text_.line(cat("const int key_count = keys_left < ", keys_, " ? (int)keys_left : ", keys_, ";"));
    f_.print_early(keys_ / 8, FlashFrame::Keys::kEdge);
  }

  // Scores of the next block of keys, and sums of the previous one.
  void print_both_products() {
    if (turns()) text_.line("named_sync(1 + group, 256);");
    print_key_products();
    print_rescale();
    text_.line("barrier_wait(v_full + 8 * v_slot, v_phase);");
    print_value_products();
    if (turns()) text_.line(cat("named_arrive(1 + (group + 1) % ", groups_, ", 256);"));
  }

  void print_steps(const std::string& condition, FlashFrame::Keys which) {
    text_.line("#pragma unroll 1");
    text_.open(cat("for (; ", condition, "; --block)"));
    print_both_products();
    print_place("block");
    f_.print_early(keys_ / 8, which);
    text_.line("wait_keys<1>(s);");
    print_release("k");
    print_softmax(which, false);
    // This branch keeps the compiler from moving the exponentials below the wait for the values.
    text_.line("if (block > 0) barrier_wait(k_full + 8 * k_slot, k_phase);");
    text_.line("wait_values<0>(o);");
    print_release("v");
    print_pack();
    text_.close();
  }

  void print_release(const std::string& name) {
    text_.line(cat("if (", passes() ? "lane_id == 0" : "leader", ") barrier_arrive(", name, "_empty + 8 * ",
                   name, "_slot);"));
    print_ring((name + "_slot").c_str(), (name + "_phase").c_str(), stages_);
  }

  void print_key_products() {
    text_.line("products_begin();");
    text_.line("#pragma unroll");
    text_.line(cat("for (int c = 0; c < ", deep_ / 16, "; ++c) multiply_keys(s, descriptor(q_low + q_slot * ",
                   groups_ * q_bytes() / 16, " + c / 4 * ", 8192 / 16,
                   " + c % 4 * 2), descriptor(k_low + k_slot * ", k_bytes() / 16, " + c / 4 * ",
                   keys_ * 128 / 16, " + c % 4 * 2), c != 0);"));
    text_.line("products_commit();");
  }

  void print_value_products() {
    text_.line("products_begin();");
    text_.line("#pragma unroll");
    text_.line(cat("for (int c = 0; c < ", keys_ / 16,
                   "; ++c) multiply_values(o, p + 4 * c, descriptor(v_low + v_slot * ", v_bytes() / 16,
                   " + c * 128));"));
    text_.line("products_commit();");
  }

  void print_pack() {
    text_.line("#pragma unroll");
    text_.line(cat("for (int i = 0; i < ", keys_ / 4, "; ++i) p[i] = pair_of(s[2 * i], s[2 * i + 1]);"));
  }

  void print_rescale() {
    text_.open("if (__any_sync(~0u, kept[0] != 1.0f || kept[1] != 1.0f))");
    text_.line("#pragma unroll");
    text_.line(cat("for (int i = 0; i < ", across_ / 2, "; ++i) o[i] *= kept[i / 2 % 2];"));
    text_.close();
  }

  // Prints the statements of the scores, then the weights relative to a running maximum that is updated only
  // if weights would otherwise exceed 2^8.
  void print_softmax(FlashFrame::Keys which, bool first) {
    f_.print_scores(
        keys_ / 8, which,
        [](const std::string& j, const std::string& e) { return cat("s[", j, " * 4 + ", e, "]"); }, true);
    text_.line("float shift[2];");
    text_.line("#pragma unroll");
    text_.open("for (int h = 0; h < 2; ++h)");
    text_.line("float top[4];");
    text_.line("#pragma unroll");
    text_.open(cat("for (int i = 0; i < ", keys_ / 4, "; ++i)"));
    text_.line("const float x = s[i / 2 * 4 + h * 2 + i % 2];");
    text_.line("top[i % 4] = i < 4 ? x : fmaxf(top[i % 4], x);");
    text_.close();
    text_.line("float most = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));");
    if (!first) text_.line("most = fmaxf(most, m[h]);");
    text_.line("most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));");
    text_.line("most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));");
    if (!first) text_.line(cat("if (", f_.powers("most - m[h]"), " <= 8.0f) most = m[h];"));
    f_.print_shift("most");
    text_.line(cat("kept[h] = ", first ? "1" : f_.weight("m[h]", "h"), ";"));
    if (!first && f_.flash.fixes) text_.line("if (fix[h]) kept[h] = 1;");
    text_.line("m[h] = most;");
    text_.close();
    text_.line("#pragma unroll");
    text_.open("for (int h = 0; h < 2; ++h)");
    text_.line("float sum[4];");
    text_.line("#pragma unroll");
    text_.open(cat("for (int i = 0; i < ", keys_ / 4, "; ++i)"));
    text_.line("float& x = s[i / 2 * 4 + h * 2 + i % 2];");
    text_.line(cat("x = ", f_.weight("x", "h"), ";"));
    text_.line("sum[i % 4] = i < 4 ? x : sum[i % 4] + x;");
    if (f_.flash.fixes) text_.line("if (fix[h]) x = 1;");
    text_.close();
    text_.line("const float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);");
    text_.line(first ? "l[h] = total;" : "l[h] = l[h] * kept[h] + total;");
    text_.close();
  }

  FlashFrame f_;
  KernelText& text_;
  const int groups_, keys_, deep_, across_, stages_, slots_;
  std::optional<FlashSource> q_, k_, v_;
};

}  // namespace

std::optional<DeviceChoice> emit_flash_wgmma(const loop::Program& program, const loop::Nest& nest,
                                             const kernels::FlashPlan& plan, bool assumes,
                                             const GpuTarget& target) {
  return Emitter(program, nest, plan, assumes).emit(target);
}

}  // namespace stridec::codegen::cuda
