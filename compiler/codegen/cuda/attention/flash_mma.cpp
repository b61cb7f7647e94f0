#include "compiler/codegen/cuda/attention/flash_mma.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/common/frame.h"
#include "compiler/codegen/cuda/matrix/matrix.h"

namespace stridec::codegen::cuda {
using sym::Expr;

std::string_view load_lines_declarations() {
  return R"(
template <int kLines, int kPadded, int kHeld, int kThreads, bool kWide, class Bits>
static inline void load_lines(unsigned to, const Bits* from, int64_t pitch, int64_t count, int thread) {
  constexpr int kBytes = sizeof(Bits), kLanes = kWide ? 16 / kBytes : 1, kPieces = kPadded / kLanes;
  constexpr int kApart = kThreads / kPieces;  // lines between two pieces of a thread
  if constexpr (kWide && kPadded == kHeld && kThreads % kPieces == 0 && kLines % (kApart > 0 ? kApart : 1) == 0) {
    if (count >= kLines) {
      const int line = thread / kPieces, at = thread % kPieces * kLanes;
      const Bits* const source = from + line * pitch + at;
      const unsigned place = to + swizzled<kPadded * kBytes>(line, at * kBytes);
      // line and i have no bit in common, so that the swizzle of line + i is that of line xor that of i.
      #pragma unroll
      for (int i = 0; i < kLines; i += kApart)
        copy_async<16>((place ^ turn_of<kPadded * kBytes>(i) << 4) + i * kPadded * kBytes, source + i * pitch);
      return;
    }
  }
  #pragma unroll 4
  for (int i = thread; i < kLines * kPieces; i += kThreads) {
    const int line = i / kPieces, at = i % kPieces * kLanes;
    const bool live = line < count && at < kHeld;
    const unsigned place = to + swizzled<kPadded * kBytes>(line, at * kBytes);
    const Bits* const source = from + (live ? line * pitch + at : 0);
    if constexpr (kWide || kBytes == 4)
      copy_async<kLanes * kBytes>(place, source, live);
    else
      store_shared(place, live ? *source : (Bits)0);
  }
}
)";
}

MmaEmitter::MmaEmitter(const loop::Program& program, const loop::Nest& nest, const kernels::FlashPlan& plan,
                       bool wide, bool assumes)
    : f_(program, nest, plan, assumes, plan.spread > 0),
      text_(f_.text),
      wide_(wide),
      deep_(static_cast<int>(kernels::padded(f_.flash.depth))),
      across_(static_cast<int>(kernels::padded(f_.flash.width))) {}

DeviceKernel MmaEmitter::emit(const GpuTarget& target) {
  print(target.dependent_launch);
  Geometry geometry{.grid = {f_.batches() * f_.row_tiles() * std::max(1, f_.plan.split), 1, 1},
                    .threads = threads()};
  geometry.cluster = std::max(1, f_.plan.split);
  geometry.shared_bytes = kernels::shared_bytes(f_.plan, f_.flash);
  geometry.dependent_launch = target.dependent_launch;
  return finish(f_.text, std::move(geometry),
                cat(declarations(), splits() ? peers_declarations() : std::string_view()));
}

std::string MmaEmitter::declarations() const {
  const DType dtype = f_.flash.dtype, element = words() ? DType::kTF32 : dtype;
  return cat(memory_declarations(), mma_declarations(element, element, DType::kF32),
             flash_declarations(dtype), words() ? words_declarations() : std::string_view(),
             load_lines_declarations(), fours_declarations());
}

void MmaEmitter::print_load(const char* name, const std::string& to, int lines, int padded, int64_t held,
                            const std::string& first, const std::string& count) {
  text_.line(cat("load_lines<", lines, ", ", padded, ", ", held, ", ", alone() ? 32 : threads(), ", ",
                 wide_ ? "true" : "false", ">(", to, ", ", name, "_from + ", first, " * ", name, "_line, ",
                 name, "_line, ", count, ", ", alone() ? "lane_id" : "thread", ");"));
}

void MmaEmitter::print_fill(Factor factor, const std::string& first, const std::string& stage) {
  const bool keyed = factor == Factor::kKeys;
  print_load(keyed ? "k" : "v",
             cat("ring + ", stage, " * ", stage_bytes(), keyed ? "" : cat(" + ", key_bytes())), keys(),
             keyed ? deep_ : across_, keyed ? f_.flash.depth : f_.flash.width, first,
             cat("key_end - ", first));
}

void MmaEmitter::print(bool dependent) {
  text_.line("extern __shared__ __align__(1024) unsigned char shared[];");
  text_.line("const int thread = threadIdx.x, lane_id = thread % 32, warp = thread / 32;");
  if (dependent) text_.line("launch_dependents();");
  const std::string tiles = text_.size(f_.row_tiles());
  text_.line(cat("const int64_t row_tiles = ", tiles, ";"));
  std::string block = "blockIdx.x";
  if (splits()) {
    text_.line(cat("const int rank = blockIdx.x % ", f_.plan.split, ", part = rank * ", kernels::kSplitWarps,
                   " + warp;"));
    text_.line(cat("const int64_t block = blockIdx.x / ", f_.plan.split, ";"));
    block = "block";
  }
  // Lengths may be computed by the preceding kernel.
  const bool early = dependent && !f_.flash.asks_memory();
  if (dependent && !early) text_.line("wait_predecessor();");
  f_.print_tile(cat(block, " / row_tiles"), cat("row_tiles - 1 - ", block, " % row_tiles"));
  print_operands();
  const std::string start = splits() ? cat("((int64_t)part * ", keys(), ")") : "(int64_t)0";
  if (early && splits()) print_prefetch(start, "key_end", f_.plan.stages);
  if (early) text_.line("wait_predecessor();");
  print_walk(start, "key_end");
  if (splits()) return print_meeting();
  f_.print_factors("warp_row", "m", "l");
  f_.print_values(across_ / 8, "warp_row", wide_,
                  [](const std::string& j, const std::string& e) { return cat("o[", j, "][", e, "]"); });
}

void MmaEmitter::print_operands() {
  const kernels::Flash& flash = f_.flash;
  for (const auto& [name, operand] : {std::pair("q", &flash.q), {"k", &flash.k}, {"v", &flash.v}}) {
    if (operand->scattered) continue;
    text_.line(cat("const ", bits(), "* const ", name, "_from = (const ", bits(), "*)",
                   text_.pointer(operand->load->access.buffer), " + ", f_.base(*operand), ";"));
    text_.line(cat("const int64_t ", name, "_line = ", text_.size(operand->line), ";"));
  }
}

void MmaEmitter::print_walk(const std::string& start, const std::string& stop) {
  text_.line(cat("const int warp_row = ", own_rows(), " + lane_id / 4;"));
  f_.print_rows("warp_row");
  if (f_.flash.visible && !alone()) f_.print_seen(own_rows());
  const int query_bytes = f_.plan.rows * deep_line();
  text_.line(cat("const unsigned q_tile = shared_address(shared)",
                 alone() ? cat(" + warp * ", warp_bytes()) : "", ", ring = q_tile + ", query_bytes, ";"));
  print_queries();
  print_first_requests(start, stop);
  text_.line(cat("float o[", across_ / 8, "][4] = {};"));
  text_.line("float m[2] = {-__builtin_inff(), -__builtin_inff()}, l[2] = {0, 0};");
  text_.line("int stage = 0;");
  text_.line("#pragma unroll 1");
  text_.open(cat("for (int64_t n0 = ", start, "; n0 < ", stop, "; n0 += ", stride(), ")"));
  print_step(stop);
  text_.close();
  text_.line("wait_copies<0>();");
}

void MmaEmitter::print_request(std::initializer_list<Factor> factors, const std::string& first,
                               const std::string& stop, const std::string& stage) {
  text_.open(cat("if (", first, " < ", stop, ")"));
  for (const Factor factor : factors) print_fill(factor, first, stage);
  text_.close();
  text_.line("commit_copies();");
}

void MmaEmitter::print_first_requests(const std::string& start, const std::string& stop) {
  // All stages of a warp's own ring are free. In a shared ring, one stage is filled in the first step.
  for (int stage = 0; stage + !alone() < f_.plan.stages; ++stage) {
    const std::string first = stage ? cat("(", start, " + ", stage * stride(), ")") : start;
    const std::string number = std::to_string(stage);
    if (alone()) {
      print_request({Factor::kKeys}, first, stop, number);
      print_request({Factor::kValues}, first, stop, number);
    } else {
      print_fill(Factor::kKeys, first, number);
      print_fill(Factor::kValues, first, number);
      text_.line("commit_copies();");
    }
  }
}

void MmaEmitter::print_wait() {
  const int stages = f_.plan.stages;
  text_.line(cat("wait_copies<", alone() ? 2 * stages - 1 : stages - 2, ">();"));
  text_.line(barrier());
}

void MmaEmitter::print_step(const std::string& stop) {
  const int stages = f_.plan.stages;
  text_.line(cat("const int64_t keys_left = ", text_.size(f_.flash.keys.extent), " - n0;"));
  if (alone()) {
    text_.line(cat("const int key_count = keys_left < ", keys(), " ? (int)keys_left : ", keys(), ";"));
    f_.print_early(keys() / 8, FlashFrame::Keys::kEdge);
  }
  print_wait();
  if (!alone())
    print_request({Factor::kKeys, Factor::kValues}, ahead(stages - 1), stop,
                  cat("((stage + ", stages - 1, ") % ", stages, ")"));
  text_.line(cat("const unsigned k_tile = ring + stage * ", stage_bytes(), ", v_tile = k_tile + ",
                 key_bytes(), ";"));
  print_products();
  if (alone()) {
    text_.line("__syncwarp();");
    print_request({Factor::kKeys}, ahead(stages), stop, "stage");
  }
  print_step_scores();
  print_weights();
  if (alone()) print_wait();
  print_sums();
  if (alone()) {
    text_.line("__syncwarp();");
    print_request({Factor::kValues}, ahead(stages), stop, "stage");
  }
  text_.line(cat("stage = (stage + 1) % ", stages, ";"));
}

void MmaEmitter::print_step_scores() {
  using Keys = FlashFrame::Keys;
  const auto score = [](const std::string& j, const std::string& e) { return cat("s[", j, "][", e, "]"); };
  if (alone()) return f_.print_scores(keys() / 8, Keys::kEdge, score, true);
  text_.open(cat("if (keys_left < ", keys(), ")"));
  text_.line("const int key_count = (int)keys_left;");
  f_.print_scores(keys() / 8, Keys::kEdge, score);
  if (f_.flash.visible) {
    text_.close(cat(" else if (n0 + ", keys(), " <= keys_seen) {"));
    f_.print_scores(keys() / 8, Keys::kSeen, score);
  }
  text_.close(" else {");
  f_.print_scores(keys() / 8, Keys::kAll, score);
  text_.line("}");
}

void MmaEmitter::print_queries() {
  const kernels::Flash& flash = f_.flash;
  if (!flash.q.scattered)
    return print_load("q", "q_tile", f_.plan.rows, deep_, flash.depth, "first_row", "row_count");
  const int bytes = flash.bytes(), lanes = wide_ ? 16 / bytes : 1, pieces = deep_ / lanes;
  text_.open(cat("for (int i = ", alone() ? "lane_id" : "thread", "; i < ", f_.plan.rows * pieces,
                 "; i += ", alone() ? 32 : threads(), ")"));
  text_.line(cat("const int line = i / ", pieces, ", at = i % ", pieces, " * ", lanes, ";"));
  text_.line(cat("const bool live = line < row_count && at < ", flash.depth, ";"));
  text_.line(cat("const unsigned place = ", place("q_tile", deep_line(), "line", cat("at * ", bytes)), ";"));
  text_.line("const int64_t query = first_row + (live ? line : 0);");
  text_.line(cat("const ", bits(), "* const from = (const ", bits(), "*)",
                 text_.pointer(flash.q.load->access.buffer), " + ", f_.query_base("query"),
                 " + (live ? at : 0);"));
  text_.line(wide_ || words() ? cat("copy_async<", lanes * bytes, ">(place, from, live);")
                              : "store_shared(place, live ? *from : (unsigned short)0);");
  text_.close();
}

void MmaEmitter::print_prefetch(const std::string& start, const std::string& stop, int steps) {
  const int line = 128 / f_.flash.bytes();  // elements
  for (const auto& [name, width] : {std::pair("k", f_.flash.depth), {"v", f_.flash.width}}) {
    const auto pieces = (width + line - 1) / line;
    text_.open(cat("for (int i = lane_id; i < ", steps * keys() * pieces, "; i += 32)"));
    text_.line(cat("const int64_t key = ", start, " + i / ", pieces * keys(), " * ", stride(), " + i / ",
                   pieces, " % ", keys(), ";"));
    text_.line(cat("if (key < ", stop, ") prefetch(", name, "_from + key * ", name, "_line + i % ", pieces,
                   " * ", line, ");"));
    text_.close();
  }
}

std::string place(const std::string& tile, int line_bytes, const std::string& line, const std::string& at) {
  return cat(tile, " + swizzled<", line_bytes, ">(", line, ", ", at, ")");
}

std::string place_on(const std::string& place, int line_bytes, const std::string& lines,
                     const std::string& at) {
  return cat("swizzled_on<", line_bytes, ">(", place, ", ", at, ") + ", lines, " * ", line_bytes);
}

void MmaEmitter::print_products() {
  text_.line(cat(
      "const unsigned q_lane = ",
      place("q_tile", deep_line(), cat(own_rows(), " + lane_id % 16"), "lane_id / 16 * 16"), ", k_lane = ",
      place("k_tile", deep_line(), "lane_id % 8 + lane_id / 16 * 8", "lane_id / 8 % 2 * 16"), ";"));
  if (words())
    return word_products().print_products("s", "small", keys(), deep_, deep_line(), "q_lane", "k_lane");
  text_.line(cat("float s[", keys() / 8, "][4] = {};"));
  text_.line("#pragma unroll");
  text_.open(cat("for (int k = 0; k < ", deep_, "; k += 16)"));
  text_.line("unsigned a[4];");
  text_.line(cat("load_matrices(a, ", place_on("q_lane", deep_line(), "0", "k * 2"), ");"));
  text_.line("#pragma unroll");
  text_.open(cat("for (int j = 0; j < ", keys() / 16, "; ++j)"));
  text_.line("unsigned b[4];");
  text_.line(cat("load_matrices(b, ", place_on("k_lane", deep_line(), "j * 16", "k * 2"), ");"));
  text_.line("multiply(s[2 * j], a, b[0], b[1]);");
  text_.line("multiply(s[2 * j + 1], a, b[2], b[3]);");
  text_.close();
  text_.close();
}

void MmaEmitter::print_weights() {
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
  // In such rows keys beyond the last one also get weight 1, but their values are zeros.
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

void MmaEmitter::print_sums() {
  if (words())
    return word_products().print_sums(
        "o", [](const std::string& at) { return "s" + at; }, keys(), across_, across_line(), "v_tile");
  text_.line(cat("const unsigned v_lane = ",
                 place("v_tile", across_line(), "lane_id % 8 + lane_id / 8 % 2 * 8", "lane_id / 16 * 16"),
                 ";"));
  text_.line("#pragma unroll");
  text_.open(cat("for (int k = 0; k < ", keys() / 16, "; ++k)"));
  text_.line("const unsigned a[4] = {pair_of(s[2 * k][0], s[2 * k][1]), pair_of(s[2 * k][2], s[2 * k][3]),");
  text_.line("    pair_of(s[2 * k + 1][0], s[2 * k + 1][1]), pair_of(s[2 * k + 1][2], s[2 * k + 1][3])};");
  text_.line("#pragma unroll");
  text_.open(cat("for (int j = 0; j < ", across_ / 16, "; ++j)"));
  text_.line("unsigned b[4];");
  text_.line(cat("load_transposed(b, ", place_on("v_lane", across_line(), "k * 16", "j * 32"), ");"));
  text_.line("multiply(o[2 * j], a, b[0], b[1]);");
  text_.line("multiply(o[2 * j + 1], a, b[2], b[3]);");
  text_.close();
  text_.close();
}

}  // namespace stridec::codegen::cuda
