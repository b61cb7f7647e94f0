#include "compiler/codegen/cuda/flash.h"

#include <algorithm>
#include <functional>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/flash_frame.h"
#include "compiler/codegen/cuda/flash_wgmma.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/matrix.h"
#include "compiler/schedule/choose_flash.h"

namespace stridec::codegen::cuda {
namespace {

using sym::Expr;

// Lines of kHeld elements, `pitch` elements apart, into lines of kPadded + 8; what is not held is 0.
constexpr std::string_view kLines = R"(
template <int kLines, int kPadded, int kHeld, int kThreads, bool kWide>
static inline void load_lines(unsigned to, const unsigned short* from, int64_t pitch, int64_t count, int thread) {
  constexpr int kLanes = kWide ? 8 : 1, kPieces = kPadded / kLanes;
  #pragma unroll 4
  for (int i = thread; i < kLines * kPieces; i += kThreads) {
    const int line = i / kPieces, at = i % kPieces * kLanes;
    const bool live = line < count && at < kHeld;
    const unsigned place = to + (line * (kPadded + 8) + at) * 2;
    const unsigned short* const source = from + (live ? line * pitch + at : 0);
    if constexpr (kWide)
      copy_async<16>(place, source, live);
    else
      store_shared(place, live ? *source : (unsigned short)0);
  }
}
)";

// Four numbers of a thread, in shared memory and in the workspace.
constexpr std::string_view kFours = R"(
#ifdef STRIDEC_EMULATE
static inline void load_four(float (&v)[4], unsigned from) { __builtin_memcpy(v, sd_shared + from, 16); }
static inline void store_four(unsigned to, float a, float b, float c, float d) {
  const float v[4] = {a, b, c, d};
  __builtin_memcpy(sd_shared + to, v, 16);
}
static inline void store_part(float* to, const float (&v)[4]) { __builtin_memcpy(to, v, 16); }
static inline void load_part(float (&v)[4], const float* from, bool live) {
  v[0] = v[1] = v[2] = v[3] = 0;
  if (live) __builtin_memcpy(v, from, 16);
}
#else
static inline void load_four(float (&v)[4], unsigned from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
}
static inline void store_four(unsigned to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
static inline void store_part(float* to, const float (&v)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
static inline void load_part(float (&v)[4], const float* from, bool live) {
  v[0] = v[1] = v[2] = v[3] = 0;
  if (live)
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]) : "l"(from) : "memory");
}
#endif
)";

// Whether the block is the last of `count` to come, which leaves the counter 0 for the next launch. What the others wrote
// before a barrier of theirs and this, the last one reads behind this and a barrier of its own.
constexpr std::string_view kArrive = R"(
#ifdef STRIDEC_EMULATE
static inline bool comes_last(unsigned* counter, unsigned count) { return atomicInc(counter, count - 1) == count - 1; }
#else
static inline bool comes_last(unsigned* counter, unsigned count) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(count - 1) : "memory");
  return before == count - 1;
}
#endif
)";

// Numbers of another block of the cluster, from the same place of its shared memory.
constexpr std::string_view kPeers = R"(
static inline void load_peer(float (&v)[4], unsigned from, int rank) {
  asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a];\n}"
      : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from), "r"(rank) : "memory");
}
static inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
)";

// A warp has 16 rows of the tile. Thread t of it has, of each block of 8 keys or columns, two in row t / 4 and two 8
// rows below. Where warps share the keys, each has the whole tile's 16 rows and works by itself, with queries and a ring of
// its own, until all of a cluster leave what they have in shared memory and each brings some columns together.
class MmaEmitter {
 public:
  MmaEmitter(const loop::Program& program, const loop::Nest& nest, const kernels::FlashPlan& plan, bool wide,
             bool assumes)
      : f_(program, nest, plan, assumes, plan.spread > 0),
        text_(f_.text),
        wide_(wide),
        deep_(static_cast<int>(kernels::padded(f_.flash.depth))),
        across_(static_cast<int>(kernels::padded(f_.flash.width))) {}

  std::optional<Expr> condition() const {
    const std::optional<Expr> able = wide_ ? f_.wide_condition() : Expr(1);
    if (!able || !f_.plan.spread) return able;
    return sym::logical_and(*able, sym::le(units(), 0x3fff0000));  // they are counted in 32 bits
  }
  std::vector<loop::BufferId> buffers() const { return f_.buffers(); }

  DeviceKernel emit(const GpuTarget& target) {
    print(target.dependent_launch);
    Geometry geometry{.grid = {f_.batches() * f_.row_tiles() * std::max(1, f_.plan.split), 1, 1},
                      .threads = threads()};
    geometry.cluster = std::max(1, f_.plan.split);
    geometry.shared_bytes = kernels::shared_bytes(f_.plan, f_.flash);
    geometry.dependent_launch = target.dependent_launch;
    return finish(
        f_.text, std::move(geometry),
        cat(memory_declarations(), mma_declarations(f_.flash.dtype, f_.flash.dtype, DType::kF32),
            flash_declarations(f_.flash.dtype), kLines, kFours, splits() ? kPeers : std::string_view()));
  }

  DeviceKernel emit_spread(const GpuTarget& target) {
    print_spread(target);
    Geometry geometry{
        .grid = {shares(target).blocks(), 1, 1}, .threads = threads(), .blocks_sm = f_.plan.spread};
    geometry.shared_bytes = kernels::shared_bytes(f_.plan, f_.flash);
    geometry.dependent_launch = target.dependent_launch;
    geometry.workspace_bytes = slots(target) * kernels::part_bytes(f_.flash);
    geometry.counters = slots(target) * spread_levels(target);
    return finish(f_.text, std::move(geometry),
                  cat(memory_declarations(), mma_declarations(f_.flash.dtype, f_.flash.dtype, DType::kF32),
                      flash_declarations(f_.flash.dtype), kLines, kFours, kArrive));
  }

 private:
  // Parts that a block brings together at most, and so many of them at a time.
  static constexpr int kTogether = 32, kAhead = 16;

  // ---- spread: all blocks of the device share all keys of all tiles, in units of a step of a block's warps ----
  Expr points() const { return f_.batches() * f_.row_tiles(); }
  Expr units() const { return points() * all_steps(); }
  Expr all_steps() const { return sym::ceildiv(f_.flash.keys.extent, stride()); }

  // What the blocks share: as the host sees it all keys and as many blocks as there is room for, on the device those that
  // are seen, where memory says which, and as many blocks as there are.
  struct Shares {
    Expr points, steps, room;
    Expr units() const { return points * steps; }
    Expr even() const { return sym::max(1, sym::ceildiv(units(), room)); }
    // Units of a block that has no other tile, so many for each tile.
    Expr alone() const {
      return sym::max(1, sym::ceildiv(steps, sym::max(1, sym::floordiv(room, sym::max(1, points)))));
    }
    // A second tile costs a block about as much as a step: it waits for what it left of the first, and begins anew.
    Expr whole() const { return sym::logical_and(sym::le(points, room), sym::le(alone(), even() + 1)); }
    Expr share() const { return sym::select(whole(), alone(), even()); }
    // Units from a tile to the next, whose last ones may be empty.
    Expr pitch() const { return sym::select(whole(), sym::ceildiv(steps, alone()) * alone(), steps); }
    Expr blocks() const { return sym::ceildiv(points * pitch(), share()); }
  };
  Shares shares(const GpuTarget& target) const {
    return {points(), all_steps(), f_.plan.spread * target.multiprocessors};
  }
  // Parts are numbered by the sum of their tile's and their block's numbers: from one to the next either grows, or both.
  Expr slots(const GpuTarget& target) const { return shares(target).blocks() + points(); }
  // How often parts of a tile are brought together until one is left.
  int spread_levels(const GpuTarget& target) const {
    int levels = 0;
    for (int parts = f_.plan.spread * target.multiprocessors; parts > 1; ++levels)
      parts = (parts + kTogether - 1) / kTogether;
    return std::max(1, levels);
  }
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
                  const std::string& first, const std::string& count) {
    text_.line(cat("load_lines<", lines, ", ", padded, ", ", held, ", ", alone() ? 32 : threads(), ", ",
                   wide_ ? "true" : "false", ">(", to, ", ", name, "_from + ", first, " * ", name, "_line, ",
                   name, "_line, ", count, ", ", alone() ? "lane_id" : "thread", ");"));
  }

  void print_keys(const std::string& first, const std::string& stage) {
    const std::string count = cat("key_end - ", first);
    print_load("k", cat("ring + ", stage, " * ", stage_bytes()), keys(), deep_, f_.flash.depth, first, count);
    print_load("v", cat("ring + ", stage, " * ", stage_bytes(), " + ", key_bytes()), keys(), across_,
               f_.flash.width, first, count);
  }

  int warp_bytes() const { return static_cast<int>(kernels::warp_bytes(f_.plan, f_.flash)); }
  int key_bytes() const { return keys() * (deep_ + 8) * 2; }
  int stage_bytes() const { return key_bytes() + keys() * (across_ + 8) * 2; }

  void print(bool dependent) {
    text_.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text_.line("const int thread = threadIdx.x, lane_id = thread % 32, warp = thread / 32;");
    if (dependent) text_.line("launch_dependents();");
    const std::string tiles = text_.size(f_.row_tiles());
    text_.line(cat("const int64_t row_tiles = ", tiles, ";"));
    std::string block = "blockIdx.x";
    if (splits()) {
      text_.line(cat("const int rank = blockIdx.x % ", f_.plan.split, ", part = rank * ",
                     kernels::kSplitWarps, " + warp;"));
      text_.line(cat("const int64_t block = blockIdx.x / ", f_.plan.split, ";"));
      block = "block";
    }
    // Lengths may be what the kernel before this one makes.
    const bool early = dependent && !f_.flash.asks_memory();
    if (dependent && !early) text_.line("wait_predecessor();");
    f_.print_tile(cat(block, " / row_tiles"), cat("row_tiles - 1 - ", block, " % row_tiles"));
    print_operands();
    const std::string start = splits() ? cat("((int64_t)part * ", keys(), ")") : "(int64_t)0";
    if (early && splits()) print_prefetch(start, "key_end");
    if (early) text_.line("wait_predecessor();");
    print_walk(start, "key_end");
    if (splits()) return print_meeting();
    f_.print_factors("l");
    f_.print_values(across_ / 8, "warp_row", wide_,
                    [](const std::string& j, const std::string& e) { return cat("o[", j, "][", e, "]"); });
  }

  void print_operands() {
    const kernels::Flash& flash = f_.flash;
    for (const auto& [name, operand] : {std::pair("q", &flash.q), {"k", &flash.k}, {"v", &flash.v}}) {
      if (operand->scattered) continue;
      text_.line(cat("const unsigned short* const ", name,
                     "_from = ", text_.pointer(operand->load->access.buffer), " + ", f_.base(*operand), ";"));
      text_.line(cat("const int64_t ", name, "_line = ", text_.size(operand->line), ";"));
    }
  }

  // o, m and l of the keys from `start` to `stop`, a warp's or a block's.
  void print_walk(const std::string& start, const std::string& stop) {
    const kernels::Flash& flash = f_.flash;
    text_.line(cat("const int warp_row = ", own_rows(), " + lane_id / 4;"));
    f_.print_rows("warp_row");
    if (flash.visible && !alone()) f_.print_seen(own_rows());
    const int query_bytes = f_.plan.rows * (deep_ + 8) * 2, stages = f_.plan.stages;
    text_.line(cat("const unsigned q_tile = shared_address(shared)",
                   alone() ? cat(" + warp * ", warp_bytes()) : "", ", ring = q_tile + ", query_bytes, ";"));
    print_queries();
    // Of a warp's own ring every stage is free, of one that warps share all but the one that is filled in the first step.
    for (int stage = 0; stage + !alone() < stages; ++stage) {
      const std::string first = stage ? cat("(", start, " + ", stage * stride(), ")") : start;
      if (alone()) text_.open(cat("if (", first, " < ", stop, ")"));
      print_keys(first, std::to_string(stage));
      if (alone()) text_.close();
      text_.line("commit_copies();");
    }
    text_.line(cat("float o[", across_ / 8, "][4] = {};"));
    text_.line("float m[2] = {-__builtin_inff(), -__builtin_inff()}, l[2] = {0, 0};");
    text_.line("int stage = 0;");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int64_t n0 = ", start, "; n0 < ", stop, "; n0 += ", stride(), ")"));
    text_.line(cat("const int64_t keys_left = ", text_.size(flash.keys.extent), " - n0;"));
    using Keys = FlashFrame::Keys;
    if (alone()) {
      text_.line(cat("const int key_count = keys_left < ", keys(), " ? (int)keys_left : ", keys(), ";"));
      f_.print_early(keys() / 8, Keys::kEdge);
    }
    text_.line(cat("wait_copies<", alone() ? stages - 1 : stages - 2, ">();"));
    text_.line(barrier());
    const auto fill = [&](int steps, const std::string& into) {
      const std::string ahead = cat("n0 + ", steps * stride());
      text_.open(cat("if (", ahead, " < ", stop, ")"));
      print_keys(cat("(", ahead, ")"), into);
      text_.close();
      text_.line("commit_copies();");
    };
    if (!alone()) fill(stages - 1, cat("((stage + ", stages - 1, ") % ", stages, ")"));
    text_.line(cat("const unsigned k_tile = ring + stage * ", stage_bytes(), ", v_tile = k_tile + ",
                   key_bytes(), ";"));
    print_products();
    const auto score = [](const std::string& j, const std::string& e) { return cat("s[", j, "][", e, "]"); };
    if (alone()) {
      f_.print_scores(keys() / 8, Keys::kEdge, score, true);
    } else {
      text_.open(cat("if (keys_left < ", keys(), ")"));
      text_.line("const int key_count = (int)keys_left;");
      f_.print_scores(keys() / 8, Keys::kEdge, score);
      if (flash.visible) {
        text_.close(cat(" else if (n0 + ", keys(), " <= keys_seen) {"));
        f_.print_scores(keys() / 8, Keys::kSeen, score);
      }
      text_.close(" else {");
      f_.print_scores(keys() / 8, Keys::kAll, score);
      text_.line("}");
    }
    print_weights();
    print_sums();
    if (alone()) {
      text_.line("__syncwarp();");
      fill(stages, "stage");
    }
    text_.line(cat("stage = (stage + 1) % ", stages, ";"));
    text_.close();
    text_.line("wait_copies<0>();");
  }

  void print_queries() {
    const kernels::Flash& flash = f_.flash;
    if (!flash.q.scattered)
      return print_load("q", "q_tile", f_.plan.rows, deep_, flash.depth, "first_row", "row_count");
    const int lanes = wide_ ? 8 : 1, pieces = deep_ / lanes;
    text_.open(cat("for (int i = ", alone() ? "lane_id" : "thread", "; i < ", f_.plan.rows * pieces,
                   "; i += ", alone() ? 32 : threads(), ")"));
    text_.line(cat("const int line = i / ", pieces, ", at = i % ", pieces, " * ", lanes, ";"));
    text_.line(cat("const bool live = line < row_count && at < ", flash.depth, ";"));
    text_.line(cat("const unsigned place = q_tile + (line * ", deep_ + 8, " + at) * 2;"));
    text_.line("const int64_t query = first_row + (live ? line : 0);");
    text_.line(cat("const unsigned short* const from = ", text_.pointer(flash.q.load->access.buffer), " + ",
                   f_.query_base("query"), " + (live ? at : 0);"));
    text_.line(wide_ ? "copy_async<16>(place, from, live);"
                     : "store_shared(place, live ? *from : (unsigned short)0);");
    text_.close();
  }

  void print_shares(const GpuTarget& target) {
    Shares by = shares(target);
    std::function<std::string(Expr)> number = [&](Expr e) { return text_.size(e); };
    if (f_.flash.asks_memory()) {
      f_.print_most();
      text_.line(cat("const int64_t steps = keys_most > ", stride(), " ? (keys_most + ", stride() - 1, ") / ",
                     stride(), " : 1, room = gridDim.x;"));
      by.steps = sym::var("%steps");
      by.room = sym::var("%room");
      f_.set_index(by.steps, "steps");
      f_.set_index(by.room, "room");
      number = [&](Expr e) { return f_.batch_index(e); };
    }
    text_.line(cat("const unsigned row_tiles = (unsigned)", text_.size(f_.row_tiles()),
                   ", points = (unsigned)", text_.size(points()), ", pitch = (unsigned)", number(by.pitch()),
                   ", share = (unsigned)", number(by.share()), ";"));
  }

  // A block goes through its units, tile by tile. Its warps take steps by turns.
  void print_spread(const GpuTarget& target) {
    text_.line("extern __shared__ __align__(1024) unsigned char shared[];");
    text_.line("const int thread = threadIdx.x, lane_id = thread % 32, warp = thread / 32;");
    if (target.dependent_launch) text_.line("launch_dependents();");
    // Lengths may be what the kernel before this one makes.
    const bool early = target.dependent_launch && !f_.flash.asks_memory();
    if (target.dependent_launch && !early) text_.line("wait_predecessor();");
    print_shares(target);
    text_.line("const unsigned all = points * pitch;");
    text_.line("unsigned unit = blockIdx.x * share;");
    text_.line("const unsigned last_unit = unit + share < all ? unit + share : all;");
    if (early) text_.line("bool begun = false;");
    text_.line("#pragma unroll 1");
    text_.open("while (unit < last_unit)");
    text_.line("const unsigned point = unit / pitch, step = unit % pitch;");
    text_.line("const unsigned count = pitch - step < last_unit - unit ? pitch - step : last_unit - unit;");
    text_.line("unit += count;");
    f_.print_tile("point / row_tiles", "point % row_tiles");
    print_operands();
    text_.line(cat("const int64_t start = (int64_t)step * ", stride(), " + warp * ", keys(),
                   ", reach = (int64_t)(step + count) * ", stride(),
                   ", stop = reach < key_end ? reach : key_end;"));
    if (early) {
      text_.open("if (!begun)");
      print_prefetch("start", "stop");
      text_.line("wait_predecessor();");
      text_.line("begun = true;");
      text_.close();
    }
    print_walk("start", "stop");
    print_leave();
    print_own();
    print_gathering();
    text_.open("if (whole)");
    print_result();
    text_.close();
    text_.line("__syncthreads();");
    text_.close();
  }

  // What the block's warps left of a tile as rows in shared memory.
  void print_own() {
    const int pitch = own_pitch();
    text_.line(cat("float* const rows = (float*)(shared + ", (across_ / 8 + 1) * 512, ");"));
    print_block([&] {
      text_.line(cat("float* const at = rows + warp_row * ", pitch, " + own * 8 + lane_id % 4 * 2;"));
      text_.line("*(float2*)at = make_float2(total[0], total[1]);");
      text_.line(cat("*(float2*)(at + ", 8 * pitch, ") = make_float2(total[2], total[3]);"));
      text_.open("if (own == 0)");
      text_.line("#pragma unroll");
      text_.open("for (int h = 0; h < 2; ++h)");
      text_.line("float all = l[h];");
      text_.line("all += __shfl_xor_sync(~0u, all, 1);");
      text_.line("all += __shfl_xor_sync(~0u, all, 2);");
      // Of parts with the same maximum none counts for less than another.
      const char* const most = f_.flash.fixes ? "fix[h] ? 0.0f : m[h]" : "m[h]";
      text_.line(cat("if (lane_id % 4 == 0) *(float2*)(rows + (warp_row + h * 8) * ", pitch, " + ", across_,
                     ") = make_float2(", most, ", all);"));
      text_.close();
      text_.close();
    });
    text_.line("__syncthreads();");
  }

  // Of a tile that several blocks have parts of: the last of a group of blocks brings theirs together, the last of groups
  // what these have, until one has all of it: it is `whole`, and the others are done. Parts are added in their order, so
  // that it does not matter which comes last.
  void print_gathering() {
    const int quads = across_ / 4, line = part_pitch(), bytes = kernels::part_bytes(f_.flash);
    text_.line(
        "const unsigned first_block = point * pitch / share, first_part = first_block + point, slots = "
        "gridDim.x + points;");
    text_.line(
        "unsigned parts = ((point + 1) * pitch - 1) / share - first_block + 1, part = blockIdx.x - "
        "first_block;");
    text_.line("unsigned apart = 1;");  // slots from a part to the next
    text_.line("unsigned* counter = counters + first_part;");
    text_.line("bool whole = true;");
    text_.line("#pragma unroll 1");
    text_.open("while (parts > 1)");
    text_.line(
        cat("float* const to = (float*)(workspace + (int64_t)(first_part + part * apart) * ", bytes, ");"));
    text_.open(cat("for (int i = thread; i < row_count * ", quads + 1, "; i += ", threads(), ")"));
    text_.line("float v[4];");
    text_.line(cat("load_four(v, shared_address(rows + i / ", quads + 1, " * ", own_pitch(), " + i % ",
                   quads + 1, " * 4));"));
    text_.line("store_part(to + i * 4, v);");
    text_.close();
    text_.line(cat("const unsigned head = part / ", kTogether, " * ", kTogether, ", left = parts - head;"));
    text_.line(cat("const unsigned members = left < ", kTogether, " ? left : ", kTogether, ";"));
    text_.line("__syncthreads();");
    text_.line("whole = __syncthreads_or(thread == 0 && comes_last(counter + head * apart, members));");
    text_.line("if (!whole) break;");
    text_.line(
        cat("const char* const from = workspace + (int64_t)(first_part + head * apart) * ", bytes, ";"));
    text_.open(cat("for (int i = thread; i < row_count * ", quads, "; i += ", threads(), ")"));
    text_.line(cat("const int row = i / ", quads, ", at = i % ", quads, " * 4;"));
    text_.line("float sum[4] = {}, most = -__builtin_inff(), all = 0;");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (unsigned first = 0; first < members; first += ", kAhead, ")"));
    text_.line(cat("float stats[", kAhead, "][4], values[", kAhead, "][4];"));
    open_parts(kAhead);
    text_.line("const bool live = first + i < members;");
    text_.line(
        cat("const float* const line = (const float*)(from + (int64_t)(live ? (first + i) * apart : 0) * ",
            bytes, ") + row * ", line, ";"));
    text_.line(cat("load_part(stats[i], line + ", across_, ", live);"));
    text_.line("load_part(values[i], line + at, live);");
    text_.line("if (!live) stats[i][0] = -__builtin_inff();");
    text_.close();
    text_.line("const int h = 0;");
    text_.line("float shift[1], top = most;");
    open_parts(kAhead);
    text_.line("top = fmaxf(top, stats[i][0]);");
    text_.close();
    f_.print_shift("top");
    text_.line(cat("const float before = ", f_.weight("most", "h"), ";"));
    text_.line("most = top;");
    text_.line("all *= before;");
    text_.line("#pragma unroll");
    text_.line("for (int e = 0; e < 4; ++e) sum[e] *= before;");
    open_parts(kAhead);
    text_.line(cat("const float kept = ", f_.weight("stats[i][0]", "h"), ";"));
    text_.line("all += stats[i][1] * kept;");
    text_.line("#pragma unroll");
    text_.line("for (int e = 0; e < 4; ++e) sum[e] += values[i][e] * kept;");
    text_.close();
    text_.close();
    text_.line(cat("float* const own_row = rows + row * ", own_pitch(), ";"));
    text_.line("store_four(shared_address(own_row + at), sum[0], sum[1], sum[2], sum[3]);");
    text_.line(cat("if (at == 0) *(float2*)(own_row + ", across_, ") = make_float2(most, all);"));
    text_.close();
    text_.line("__syncthreads();");
    text_.line(cat("part = head / ", kTogether, ";"));
    text_.line(cat("parts = (parts + ", kTogether - 1, ") / ", kTogether, ";"));
    text_.line(cat("apart *= ", kTogether, ";"));
    text_.line("counter += slots;");
    text_.close();
  }

  // The nest's statements behind the sums of a tile that the block has all of.
  void print_result() {
    const int pitch = own_pitch();
    const std::string row = cat("rows[(warp_row + h * 8) * ", pitch, " + ");
    text_.line("#pragma unroll");
    text_.line(cat("for (int h = 0; h < 2; ++h) l[h] = lane_id % 4 ? 0.0f : ", row, across_ + 1, "];"));
    f_.print_factors("l");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int own = warp; own < ", across_ / 8, "; own += ", warps(), ")"));
    f_.print_values(
        across_ / 8, "warp_row", wide_,
        [&](const std::string& j, const std::string&) { return cat(row, j, " * 8 + lane_id % 4 * 2 + w]"); },
        "own");
    text_.close();
  }

  void open_parts(int count) {
    text_.line("#pragma unroll");
    text_.open(cat("for (int i = 0; i < ", count, "; ++i)"));
  }
  // What a part with that maximum counts for beside the others, for row h.
  void print_weight(const std::string& name, const std::string& maximum) {
    text_.line(cat("float ", name, " = ", f_.weight(maximum, "h"), ";"));
    if (f_.flash.fixes) text_.line(cat("if (fix[h]) ", name, " = 1;"));
  }
  // Adds the parts' sums of row h, stats and values, to l and `sum`.
  void print_parts(int count, const std::string& sum) {
    open_parts(count);
    print_weight("kept", "stats[i][h]");
    text_.line("l[h] += stats[i][2 + h] * kept;");
    for (const char* at : {"[2 * h]", "[2 * h + 1]"})
      text_.line(cat(sum, at, " += values[i]", at, " * kept;"));
    text_.close();
  }

  // Brings the keys and values of a warp's first steps into L2, which the kernels before this one may still write: what
  // they do to L2 is seen there.
  void print_prefetch(const std::string& start, const std::string& stop) {
    constexpr int kLine = 64;  // elements
    for (const auto& [name, width] : {std::pair("k", f_.flash.depth), {"v", f_.flash.width}}) {
      const auto pieces = (width + kLine - 1) / kLine;
      text_.open(cat("for (int i = lane_id; i < ", f_.plan.stages * keys() * pieces, "; i += 32)"));
      text_.line(cat("const int64_t key = ", start, " + i / ", pieces * keys(), " * ", stride(), " + i / ",
                     pieces, " % ", keys(), ";"));
      text_.line(cat("if (key < ", stop, ") prefetch(", name, "_from + key * ", name, "_line + i % ", pieces,
                     " * ", kLine, ");"));
      text_.close();
    }
  }

  // What `count` warps or blocks have, a thread's two rows of each: maxima and sums, and sums of values of the block of 8
  // columns `own`. All are on their way before the first is used. `load` is said with where to and where from.
  void print_together(int count, const std::function<void(const std::string&, const std::string&)>& load) {
    text_.line(cat("float stats[", count, "][4], values[", count, "][4];"));
    open_parts(count);
    load("stats[i]", "");
    load("values[i]", " + (own + 1) * 512");
    text_.close();
    text_.line("float total[4] = {}, shift[2];");
    text_.line("float m[2] = {-__builtin_inff(), -__builtin_inff()}, l[2] = {0, 0};");
    text_.line("#pragma unroll");
    text_.open("for (int h = 0; h < 2; ++h)");
    open_parts(count);
    text_.line("m[h] = fmaxf(m[h], stats[i][h]);");
    text_.close();
    f_.print_shift("m[h]");
    print_parts(count, "total");
    text_.close();
  }

  // Every warp leaves its maxima and sums, of a thread's two rows, then its sums of values by blocks of 8 columns. The warps
  // of a block of threads bring them together, a block of columns each, and then those of a cluster likewise.
  void print_meeting() {
    const int blocks = across_ / 8,
              all = (blocks + 1) * 512;  // bytes of a warp's numbers; behind the first one's lie those of all
    print_leave();
    print_block([&] {
      text_.line(
          cat("store_four(ours + ", all, " + (own + 1) * 512, total[0], total[1], total[2], total[3]);"));
      text_.line(cat("if (own == 0) store_four(ours + ", all, ", m[0], m[1], l[0], l[1]);"));
    });
    text_.line("meet_cluster();");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int own = warp * ", f_.plan.split, " + rank; own < ", blocks,
                   "; own += ", f_.plan.parts(), ")"));
    print_together(f_.plan.split, [&](const std::string& to, const std::string& from) {
      text_.line(cat("load_peer(", to, ", ours + ", all, from, ", i);"));
    });
    f_.print_factors("l");
    f_.print_values(
        blocks, "warp_row", wide_,
        [](const std::string&, const std::string& e) { return cat("total[", e, "]"); }, "own");
    text_.close();
    text_.line("__syncwarp();");
    text_.line("meet_cluster();");  // nobody leaves while others read what it has
  }

  void print_leave() {
    const int blocks = across_ / 8;
    text_.line("__syncwarp();");
    text_.line("const unsigned mine = q_tile + lane_id * 16, ours = shared_address(shared) + lane_id * 16;");
    text_.line("store_four(mine, m[0], m[1], l[0], l[1]);");
    text_.line("#pragma unroll");
    text_.line(cat("for (int j = 0; j < ", blocks,
                   "; ++j) store_four(mine + (j + 1) * 512, o[j][0], o[j][1], o[j][2], o[j][3]);"));
    text_.line("__syncthreads();");
  }

  // What a block's warps left, by blocks of 8 columns: `store` finds total, m and l.
  void print_block(const std::function<void()>& store) {
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int own = warp; own < ", across_ / 8, "; own += ", warps(), ")"));
    print_together(warps(), [&](const std::string& to, const std::string& from) {
      text_.line(cat("load_four(", to, ", ours + i * ", warp_bytes(), from, ");"));
    });
    store();
    text_.close();
  }

  void print_products() {
    text_.line(cat("float s[", keys() / 8, "][4] = {};"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int k = 0; k < ", deep_, "; k += 16)"));
    text_.line("unsigned a[4];");
    text_.line(cat("load_matrices(a, q_tile + (", own_rows(), " + lane_id % 16) * ", (deep_ + 8) * 2,
                   " + (k + lane_id / 16 * 8) * 2);"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int j = 0; j < ", keys() / 16, "; ++j)"));
    text_.line("unsigned b[4];");
    text_.line(cat("load_matrices(b, k_tile + (j * 16 + lane_id % 8 + lane_id / 16 * 8) * ", (deep_ + 8) * 2,
                   " + (k + lane_id / 8 % 2 * 8) * 2);"));
    text_.line("multiply(s[2 * j], a, b[0], b[1]);");
    text_.line("multiply(s[2 * j + 1], a, b[2], b[3]);");
    text_.close();
    text_.close();
  }

  // The scores become weights under the maximum so far; what was summed before is brought down to it.
  void print_weights() {
    text_.line("float shift[2], kept[2];");
    text_.line("#pragma unroll");
    text_.open("for (int h = 0; h < 2; ++h)");
    text_.line("float top = m[h];");
    text_.line("#pragma unroll");
    text_.line(cat("for (int j = 0; j < ", keys() / 8,
                   "; ++j) top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));"));
    text_.line("top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));");
    text_.line("top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));");
    f_.print_shift("top");
    text_.line(cat("kept[h] = ", f_.weight("m[h]", "h"), ";"));
    if (f_.flash.fixes) text_.line("if (fix[h]) kept[h] = 1;");
    text_.line("m[h] = top;");
    text_.line("l[h] *= kept[h];");
    text_.close();
    text_.line("#pragma unroll");
    text_.open(cat("for (int j = 0; j < ", keys() / 8, "; ++j)"));
    text_.line("#pragma unroll");
    text_.open("for (int e = 0; e < 4; ++e)");
    text_.line(cat("s[j][e] = ", f_.weight("s[j][e]", "e / 2"), ";"));
    text_.line("l[e / 2] += s[j][e];");
    // Keys beyond the last are none of such a row's either, but their values are zeros.
    if (f_.flash.fixes) text_.line("if (fix[e / 2]) s[j][e] = 1;");
    text_.close();
    text_.close();
    text_.open("if (__any_sync(~0u, kept[0] != 1.0f || kept[1] != 1.0f))");
    text_.line("#pragma unroll");
    text_.line(cat("for (int j = 0; j < ", across_ / 8, "; ++j)"));
    text_.line("  #pragma unroll");
    text_.line("  for (int e = 0; e < 4; ++e) o[j][e] *= kept[e / 2];");
    text_.close();
  }

  void print_sums() {
    text_.line("#pragma unroll");
    text_.open(cat("for (int k = 0; k < ", keys() / 16, "; ++k)"));
    text_.line(
        "const unsigned a[4] = {pair_of(s[2 * k][0], s[2 * k][1]), pair_of(s[2 * k][2], s[2 * k][3]),");
    text_.line("    pair_of(s[2 * k + 1][0], s[2 * k + 1][1]), pair_of(s[2 * k + 1][2], s[2 * k + 1][3])};");
    text_.line("#pragma unroll");
    text_.open(cat("for (int j = 0; j < ", across_ / 16, "; ++j)"));
    text_.line("unsigned b[4];");
    text_.line(cat("load_transposed(b, v_tile + (k * 16 + lane_id % 8 + lane_id / 8 % 2 * 8) * ",
                   (across_ + 8) * 2, " + (j * 16 + lane_id / 16 * 8) * 2);"));
    text_.line("multiply(o[2 * j], a, b[0], b[1]);");
    text_.line("multiply(o[2 * j + 1], a, b[2], b[3]);");
    text_.close();
    text_.close();
  }

  FlashFrame f_;
  KernelText& text_;
  const bool wide_;
  const int deep_, across_;
};

}  // namespace

namespace {

// Whether warp groups take what is left.
bool add_warp_groups(DeviceNest& out, const loop::Program& program, const loop::Nest& nest,
                     const kernels::Flash& flash, bool assumes, const GpuTarget& target) {
  kernels::FlashPlan plan = kernels::to_flash_plan(nest.schedule);
  if (flash.given && !assumes) plan.rows = std::min(plan.rows, 128);  // scores take registers
  bool all = false;
  for (const auto& [tile, holds] : kernels::wgmma_choices(plan, flash, target)) {
    auto choice = emit_flash_wgmma(program, nest, tile, assumes, target);
    all = choice.has_value();
    if (!choice) continue;
    choice->condition = sym::simplify(sym::logical_and(choice->condition, holds), program.facts);
    if (!choice->condition.is_const(0)) out.choices.push_back(*std::move(choice));
  }
  return all;
}

}  // namespace

std::string_view peers_declarations() { return kPeers; }

DeviceNest emit_flash(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  const kernels::FlashPlan plan = kernels::to_flash_plan(nest.schedule);
  const kernels::Flash flash = *kernels::match_flash(program, nest);
  const std::vector<kernels::FlashChoice> plans = kernels::mma_choices(plan, flash, target, program.facts);
  const auto add = [&](const kernels::FlashPlan& tile, Expr holds, bool wide, bool assumes,
                       const loop::Nest& nest) {
    MmaEmitter emitter(program, nest, tile, wide, assumes);
    const auto able = emitter.condition();
    if (!able) return;
    const Expr condition = sym::simplify(sym::logical_and(*able, holds), program.facts);
    if (condition.is_const(0)) return;
    DeviceChoice& choice = out.choices.emplace_back();
    choice.condition = condition;
    if (wide) choice.aligned = emitter.buffers();
    choice.launches.push_back(tile.spread ? emitter.emit_spread(target) : emitter.emit(target));
  };
  // Heads that share keys read them once where their rows are few together.
  const auto shared =
      plan.parts() == 1 && plans.size() > 1 ? schedule::with_shared_rows(program, nest) : std::nullopt;
  if (shared) {
    const kernels::Flash rows = *kernels::match_flash(program, *shared);
    const std::vector<kernels::FlashChoice> few = kernels::mma_choices(plan, rows, target, program.facts);
    if (few[0].plan.spread) add(few[0].plan, few[0].condition, true, false, *shared);
  }
  for (const bool assumes : {true, false}) {
    if (assumes && !flash.given) continue;
    for (const auto& [tile, holds] : plans) {
      // What goes through all keys comes behind what warp groups do.
      if (tile.parts() == 1 && plan.wgmma && add_warp_groups(out, program, nest, flash, assumes, target))
        break;
      add(tile, holds, true, assumes, nest);
    }
  }
  const bool none = out.choices.empty();
  for (const auto& [tile, holds] : plans)
    if (none || &tile == &plans.back().plan) add(tile, holds, false, false, nest);
  return out;
}

}  // namespace stridec::codegen::cuda
