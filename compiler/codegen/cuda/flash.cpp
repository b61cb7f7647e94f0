#include "compiler/codegen/cuda/flash.h"

#include <algorithm>
#include <functional>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/flash_frame.h"
#include "compiler/codegen/cuda/flash_wgmma.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/matrix.h"

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

// Numbers of another block of the cluster, from the same place of its shared memory.
constexpr std::string_view kPeers = R"(
static inline void load_peer(float (&v)[4], unsigned from, int rank) {
  asm volatile("{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a];\n}"
      : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from), "r"(rank) : "memory");
}
static inline void load_four(float (&v)[4], unsigned from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
}
static inline void store_four(unsigned to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
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
      : f_(program, nest, plan, assumes, false),
        text_(f_.text),
        wide_(wide),
        deep_(static_cast<int>(kernels::padded(f_.flash.depth))),
        across_(static_cast<int>(kernels::padded(f_.flash.width))) {}

  std::optional<Expr> condition() const { return f_.wide_condition(); }
  std::vector<loop::BufferId> buffers() const { return f_.buffers(); }

  DeviceKernel emit(const GpuTarget& target) {
    print(target.dependent_launch);
    Geometry geometry{.grid = {f_.batches() * f_.row_tiles() * std::max(1, f_.plan.split), 1, 1},
                      .threads = splits() ? 32 * kernels::kSplitWarps : threads()};
    geometry.cluster = std::max(1, f_.plan.split);
    geometry.shared_bytes = kernels::shared_bytes(f_.plan, f_.flash);
    geometry.dependent_launch = target.dependent_launch;
    return finish(f_.text, std::move(geometry),
                  cat(memory_declarations(), mma_declarations(f_.flash.dtype, f_.flash.dtype, DType::kF32),
                      flash_declarations(f_.flash.dtype), kLines, splits() ? kPeers : std::string_view()));
  }

 private:
  bool splits() const { return f_.plan.split > 0; }
  int threads() const { return f_.plan.rows * 2; }  // that work together
  std::string barrier() const { return splits() ? "__syncwarp();" : "__syncthreads();"; }
  std::string own_rows() const { return splits() ? "0" : "warp * 16"; }
  // From a step to the next of the same warp.
  int stride() const { return keys() * f_.plan.parts(); }
  int keys() const { return f_.plan.keys; }

  void print_load(const char* name, const std::string& to, int lines, int padded, int64_t held,
                  const std::string& first, const std::string& count) {
    text_.line(cat("load_lines<", lines, ", ", padded, ", ", held, ", ", threads(), ", ",
                   wide_ ? "true" : "false", ">(", to, ", ", name, "_from + ", first, " * ", name, "_line, ",
                   name, "_line, ", count, ", ", splits() ? "lane_id" : "thread", ");"));
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
    const kernels::Flash& flash = f_.flash;
    text_.line("extern __shared__ __align__(128) unsigned char shared[];");
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
    f_.print_tile(cat(block, " / row_tiles"), cat("row_tiles - 1 - ", block, " % row_tiles"));
    for (const auto& [name, operand] : {std::pair("q", &flash.q), {"k", &flash.k}, {"v", &flash.v}}) {
      text_.line(cat("const unsigned short* const ", name,
                     "_from = ", text_.pointer(operand->load->access.buffer), " + ", f_.base(*operand), ";"));
      text_.line(cat("const int64_t ", name, "_line = ", text_.size(operand->line), ";"));
    }
    const std::string start = splits() ? cat("((int64_t)part * ", keys(), ")") : "(int64_t)0";
    if (dependent && splits()) print_prefetch(start);
    if (dependent) text_.line("wait_predecessor();");
    text_.line(cat("const int warp_row = ", own_rows(), " + lane_id / 4;"));
    f_.print_rows("warp_row");
    if (flash.visible && !splits()) f_.print_seen(own_rows());
    const int query_bytes = f_.plan.rows * (deep_ + 8) * 2, stages = f_.plan.stages();
    text_.line(cat("const unsigned q_tile = shared_address(shared)",
                   splits() ? cat(" + warp * ", warp_bytes()) : "", ", ring = q_tile + ", query_bytes, ";"));
    print_load("q", "q_tile", f_.plan.rows, deep_, flash.depth, "first_row", "row_count");
    // Of a warp's own ring every stage is free, of one that warps share all but the one that is filled in the first step.
    for (int stage = 0; stage + !splits() < stages; ++stage) {
      const std::string first = stage ? cat("(", start, " + ", stage * stride(), ")") : start;
      if (splits()) text_.open(cat("if (", first, " < key_end)"));
      print_keys(first, std::to_string(stage));
      if (splits()) text_.close();
      text_.line("commit_copies();");
    }
    text_.line(cat("float o[", across_ / 8, "][4] = {};"));
    text_.line("float m[2] = {-__builtin_inff(), -__builtin_inff()}, l[2] = {0, 0};");
    text_.line("int stage = 0;");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int64_t n0 = ", start, "; n0 < key_end; n0 += ", stride(), ")"));
    text_.line(cat("const int64_t keys_left = ", text_.size(flash.keys.extent), " - n0;"));
    using Keys = FlashFrame::Keys;
    if (splits()) {
      text_.line(cat("const int key_count = keys_left < ", keys(), " ? (int)keys_left : ", keys(), ";"));
      f_.print_early(keys() / 8, Keys::kEdge);
    }
    text_.line(cat("wait_copies<", splits() ? stages - 1 : stages - 2, ">();"));
    text_.line(barrier());
    const auto fill = [&](int steps, const std::string& into) {
      const std::string ahead = cat("n0 + ", steps * stride());
      text_.open(cat("if (", ahead, " < key_end)"));
      print_keys(cat("(", ahead, ")"), into);
      text_.close();
      text_.line("commit_copies();");
    };
    if (!splits()) fill(stages - 1, cat("((stage + ", stages - 1, ") % ", stages, ")"));
    text_.line(cat("const unsigned k_tile = ring + stage * ", stage_bytes(), ", v_tile = k_tile + ",
                   key_bytes(), ";"));
    print_products();
    const auto score = [](const std::string& j, const std::string& e) { return cat("s[", j, "][", e, "]"); };
    if (splits()) {
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
    if (splits()) {
      text_.line("__syncwarp();");
      fill(stages, "stage");
    }
    text_.line(cat("stage = (stage + 1) % ", stages, ";"));
    text_.close();
    text_.line("wait_copies<0>();");
    if (splits()) return print_meeting();
    f_.print_factors("l");
    f_.print_values(across_ / 8, "warp_row", wide_,
                    [](const std::string& j, const std::string& e) { return cat("o[", j, "][", e, "]"); });
  }

  // Brings the keys and values of a warp's first steps into L2, which the kernels before this one may still write: what
  // they do to L2 is seen there.
  void print_prefetch(const std::string& start) {
    constexpr int kLine = 64;  // elements
    for (const auto& [name, width] : {std::pair("k", f_.flash.depth), {"v", f_.flash.width}}) {
      const auto pieces = (width + kLine - 1) / kLine;
      text_.open(cat("for (int i = lane_id; i < ", f_.plan.stages() * keys() * pieces, "; i += 32)"));
      text_.line(cat("const int64_t key = ", start, " + i / ", pieces * keys(), " * ", stride(), " + i / ",
                     pieces, " % ", keys(), ";"));
      text_.line(cat("if (key < key_end) prefetch(", name, "_from + key * ", name, "_line + i % ", pieces,
                     " * ", kLine, ");"));
      text_.close();
    }
  }

  // What `count` warps or blocks have, a thread's two rows of each: maxima and sums, and sums of values of the block of 8
  // columns `own`. All are on their way before the first is used. `load` is said with where to and where from.
  void print_together(int count, const std::function<void(const std::string&, const std::string&)>& load) {
    text_.line(cat("float stats[", count, "][4], values[", count, "][4];"));
    text_.line("#pragma unroll");
    text_.open(cat("for (int i = 0; i < ", count, "; ++i)"));
    load("stats[i]", "");
    load("values[i]", " + (own + 1) * 512");
    text_.close();
    text_.line("float total[4] = {}, shift[2], m[2] = {-__builtin_inff(), -__builtin_inff()}, l[2] = {0, 0};");
    const auto open = [&] {
      text_.line("#pragma unroll");
      text_.open(cat("for (int i = 0; i < ", count, "; ++i)"));
    };
    text_.line("#pragma unroll");
    text_.open("for (int h = 0; h < 2; ++h)");
    open();
    text_.line("m[h] = fmaxf(m[h], stats[i][h]);");
    text_.close();
    f_.print_shift("m[h]");
    open();
    text_.line(cat("float kept = ", f_.weight("stats[i][h]", "h"), ";"));
    if (f_.flash.fixes) text_.line("if (fix[h]) kept = 1;");
    text_.line("l[h] += stats[i][2 + h] * kept;");
    text_.line("total[2 * h] += values[i][2 * h] * kept;");
    text_.line("total[2 * h + 1] += values[i][2 * h + 1] * kept;");
    text_.close();
    text_.close();
  }

  // Every warp leaves its maxima and sums, of a thread's two rows, then its sums of values by blocks of 8 columns. The warps
  // of a block of threads bring them together, a block of columns each, and then those of a cluster likewise.
  void print_meeting() {
    const int blocks = across_ / 8,
              all = (blocks + 1) * 512;  // bytes of a warp's numbers; behind the first one's lie those of all
    text_.line("__syncwarp();");
    text_.line("const unsigned mine = q_tile + lane_id * 16, ours = shared_address(shared) + lane_id * 16;");
    text_.line("store_four(mine, m[0], m[1], l[0], l[1]);");
    text_.line("#pragma unroll");
    text_.line(cat("for (int j = 0; j < ", blocks,
                   "; ++j) store_four(mine + (j + 1) * 512, o[j][0], o[j][1], o[j][2], o[j][3]);"));
    text_.line("__syncthreads();");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int own = warp; own < ", blocks, "; own += ", kernels::kSplitWarps, ")"));
    print_together(kernels::kSplitWarps, [&](const std::string& to, const std::string& from) {
      text_.line(cat("load_four(", to, ", ours + i * ", warp_bytes(), from, ");"));
    });
    text_.line(
        cat("store_four(ours + ", all, " + (own + 1) * 512, total[0], total[1], total[2], total[3]);"));
    text_.line(cat("if (own == 0) store_four(ours + ", all, ", m[0], m[1], l[0], l[1]);"));
    text_.close();
    text_.line("meet_cluster();");
    text_.line("#pragma unroll 1");
    text_.open(cat("for (int own = warp * ", f_.plan.split, " + rank; own < ", blocks,
                   "; own += ", f_.plan.parts(), ")"));
    print_together(f_.plan.split, [&](const std::string& to, const std::string& from) {
      text_.line(cat("load_peer(", to, ", ours + ", all, from, ", i);"));
    });
    f_.print_factors("l");
    f_.print_values(
        blocks, "warp_row", wide_, [](const std::string&, const std::string& e) { return cat("total[", e, "]"); },
        "own");
    text_.close();
    text_.line("__syncwarp();");
    text_.line("meet_cluster();");  // nobody leaves while others read what it has
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

// On an H200, heads of 64 under a causal mask: tiles of 256 rows and 64 keys, whose groups pass by what they do not see,
// take 0.82 of the time of 192 rows and 128 keys at 512 and 1024 rows and as much at 1536; where they do not fill the
// device, tiles of 128 rows are faster.
constexpr int64_t kFewRows = 1024;

}  // namespace

DeviceNest emit_flash(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  DeviceNest out;
  kernels::FlashPlan plan = kernels::to_flash_plan(nest.schedule);
  const kernels::Flash flash = *kernels::match_flash(program, nest);
  const bool wgmma = plan.wgmma;
  if (wgmma) plan = *kernels::mma_plan(flash, target.shared_bytes);
  std::vector<kernels::SplitChoice> plans = {{plan, 1}};
  if (plan.split) plans = kernels::split_choices(plan, flash, target);
  for (const bool assumes : {true, false}) {
    if (assumes && !flash.given) continue;
    if (wgmma) {
      kernels::FlashPlan groups = kernels::to_flash_plan(nest.schedule);
      if (flash.given && !assumes) groups.rows = std::min(groups.rows, 128);  // scores take registers
      if (flash.skips && groups.rows > 128) {
        // Under a mask of indices tiles multiply what it hides: of few rows, too much.
        sym::Expr tiles = sym::ceildiv(flash.chain.row.extent, 256);
        for (const loop::Dim& dim : flash.chain.batch) tiles *= dim.extent;
        const sym::Expr few = sym::le(flash.chain.row.extent, kFewRows),
                        full = sym::ge(tiles, 2 * target.multiprocessors);
        for (const auto& [tile, holds] :
             {std::pair{kernels::FlashPlan{.wgmma = true, .rows = 256, .keys = 64},
                        sym::logical_and(few, full)},
              {kernels::FlashPlan{.wgmma = true, .rows = 128, .keys = groups.keys}, few}}) {
          auto choice = emit_flash_wgmma(program, nest, tile, assumes, target);
          if (!choice) continue;
          choice->condition = sym::simplify(sym::logical_and(choice->condition, holds), program.facts);
          if (!choice->condition.is_const(0)) out.choices.push_back(*std::move(choice));
        }
      }
      if (auto choice = emit_flash_wgmma(program, nest, groups, assumes, target)) {
        out.choices.push_back(*std::move(choice));
        continue;
      }
    }
    for (const auto& [tile, holds] : plans) {
      MmaEmitter wide(program, nest, tile, true, assumes);
      auto condition = wide.condition();
      if (condition) condition = sym::simplify(sym::logical_and(*condition, holds), program.facts);
      if (!condition || condition->is_const(0)) continue;
      DeviceChoice& choice = out.choices.emplace_back();
      choice.condition = *condition;
      choice.aligned = wide.buffers();
      choice.launches.push_back(wide.emit(target));
    }
  }
  const kernels::FlashPlan& last = out.choices.empty() ? plan : plans.back().plan;
  out.choices.emplace_back().launches.push_back(MmaEmitter(program, nest, last, false, false).emit(target));
  return out;
}

}  // namespace stridec::codegen::cuda
