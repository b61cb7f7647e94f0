#include "compiler/codegen/cuda/words.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cuda/frame.h"
#include "compiler/codegen/cuda/matrix.h"
#include "compiler/codegen/cuda/matrix_epilogue.h"
#include "compiler/codegen/cuda/prelude.h"
#include "compiler/codegen/cuda/strip.h"
#include "compiler/kernels/words.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::MatrixFamily;
using kernels::MatrixKernel;
using kernels::WordsLayout;
using sym::Expr;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kBatch = 2;               // chunks of a warp whose loads are under way together, twice, at most
constexpr int kTaken = 104;             // registers of a thread for these and for rows: more are spilled
constexpr int kBlocks = 2;              // of a multiprocessor: a third leaves too few registers
constexpr int kRowTiles[] = {1, 2, 4};  // rows of a block, by eight
constexpr int kMostWideRowTiles = 2;    // of f32, which takes more registers

// What holds the numbers exactly on the way to the product.
DType numbers_dtype(DType element) { return element == DType::kF16 ? DType::kF16 : DType::kBF16; }

// Pairs of 16-bit floats in a word.
constexpr std::string_view kPairs = R"(
#ifdef STRIDEC_EMULATE
static inline float sd_half(unsigned pair, int which) {
  const unsigned short h = (unsigned short)(pair >> 16 * which);
  return SD_HALF;
}
static inline unsigned sd_prmt(unsigned x, unsigned y, unsigned how) {
  const unsigned long both = (unsigned long)y << 32 | x;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) out |= (unsigned)(both >> 8 * (how >> 4 * i & 7) & 255) << 8 * i;
  return out;
}
static inline unsigned sd_and_or(unsigned x, unsigned mask, unsigned bits) { return (x & mask) | bits; }
// a * b + c, which is no number that has to be rounded.
static inline unsigned sd_fma2(unsigned a, unsigned b, unsigned c) {
  unsigned out = 0;
  for (int i = 0; i < 2; ++i) {
    const float x = sd_half(a, i) * sd_half(b, i) + sd_half(c, i);
    out |= (unsigned)SD_TO_HALF << 16 * i;
  }
  return out;
}
static inline void sd_mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const int lane = threadIdx.x % 32;
  unsigned all[6][32];
  for (int from = 0; from < 32; ++from) {
    for (int i = 0; i < 4; ++i) all[i][from] = __shfl_xor_sync(~0u, a[i], lane ^ from);
    all[4][from] = __shfl_xor_sync(~0u, b0, lane ^ from);
    all[5][from] = __shfl_xor_sync(~0u, b1, lane ^ from);
  }
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k) {
      const int line = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2, in = k % 8 / 2;
      d[i] += sd_half(all[k / 8 * 2 + line / 8][line % 8 * 4 + in], k % 2) * sd_half(all[4 + k / 8][column * 4 + in], k % 2);
    }
}
static inline void sd_mma_first(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  for (int i = 0; i < 4; ++i) d[i] = 0;
  sd_mma(d, a, b0, b1);
}
#else
static inline unsigned sd_prmt(unsigned x, unsigned y, unsigned how) { return __byte_perm(x, y, how); }
static inline unsigned sd_and_or(unsigned x, unsigned mask, unsigned bits) {
  unsigned d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(x), "r"(mask), "r"(bits));
  return d;
}
static inline unsigned sd_fma2(unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm("fma.rn.SD_TYPEx2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
static inline void sd_mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.SD_TYPE.SD_TYPE.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static inline void sd_mma_first(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.SD_TYPE.SD_TYPE.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
#endif
template <int kBytes> using sd_bytes = Vec<unsigned, kBytes / 4>;
template <int kWord, int kBytes> static inline unsigned sd_word(const Vec<unsigned char, kBytes>& bytes) {
  if constexpr (kBytes == 2)
    return __builtin_bit_cast(unsigned short, bytes);
  else
    return __builtin_bit_cast(sd_bytes<kBytes>, bytes).e[kWord];
}
static inline float sd_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
static inline unsigned sd_bits(float x) { return __builtin_bit_cast(unsigned, x); }
// Two f32 as three pairs of bf16 that add up to them: 8 bits of each number at a time.
static inline void sd_pieces_of(unsigned (&pieces)[3], float x, float y) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    pieces[i] = sd_prmt(sd_bits(x), sd_bits(y), 0x7632);
    x -= sd_float(sd_bits(x) & 0xffff0000u);
    y -= sd_float(sd_bits(y) & 0xffff0000u);
  }
}
)";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// sd_take<i>: the fragment of the chunk's i-th product, number - zero; sd_zeros: what is added for that, for columns g
// and g + 8.
std::string numbers_text(const WordsLayout& layout, DType dtype) {
  const bool half = dtype == DType::kF16;
  const int bits = layout.bits;
  std::string out = replaced(std::string(kPairs), "SD_TYPE", half ? "f16" : "bf16");
  out = replaced(
      out, "SD_HALF;",
      half ? "(float)__builtin_bit_cast(_Float16, h);" : "__builtin_bit_cast(float, (unsigned)h << 16);");
  out = replaced(out, "SD_TO_HALF",
                 half ? "__builtin_bit_cast(unsigned short, (_Float16)x)"
                      : "(unsigned short)(__builtin_bit_cast(unsigned, x) >> 16)");
  if (bits == 8 && half)
    return out + R"(struct sd_zeros_of { unsigned c[2]; };
template <int kAt> static inline sd_zeros_of sd_zeros(unsigned z) {
  return {{sd_prmt(z, 0xe4e4e4e4u, 0x4040 + kAt * 0x101), sd_prmt(z, 0xe4e4e4e4u, 0x4141 + kAt * 0x101)}};
}
template <int kProduct> static inline void sd_take(unsigned (&a)[4], const Vec<unsigned, 4>& words, const sd_zeros_of& zeros) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a[i] = sd_fma2(sd_prmt(words.e[2 * kProduct + i / 2], 0x64646464u, i % 2 ? 0x4342 : 0x4140), 0x3c003c00u, zeros.c[i % 2]);
}
)";
  if (bits == 8)
    return out + R"(struct sd_zeros_of { float c[2]; };
template <int kAt> static inline sd_zeros_of sd_zeros(unsigned z) {
  return {{sd_float(sd_prmt(z, 0x4b000000u, 0x7650 + kAt)), sd_float(sd_prmt(z, 0x4b000000u, 0x7651 + kAt))}};
}
template <int kProduct> static inline void sd_take(unsigned (&a)[4], const Vec<unsigned, 4>& words, const sd_zeros_of& zeros) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned word = words.e[2 * kProduct + i / 2];
    const float low = sd_float(sd_prmt(word, 0x4b000000u, 0x7650 + i % 2 * 2)) - zeros.c[i % 2];
    const float high = sd_float(sd_prmt(word, 0x4b000000u, 0x7651 + i % 2 * 2)) - zeros.c[i % 2];
    a[i] = sd_prmt(sd_bits(low), sd_bits(high), 0x7632);
  }
}
)";
  // Eleven bits hold numbers that are shifted by less than eight as well.
  const std::string mask = std::to_string(((1 << bits) - 1) * 0x10001), per = std::to_string(4 / bits),
                    width = std::to_string(bits);
  if (half)
    return out + cat("struct sd_zeros_of { unsigned c[2][", 8 / bits, R"(]; };
template <int kAt> static inline sd_zeros_of sd_zeros(unsigned z) {
  const unsigned one = 0x3c003c00u, from[4] = {0u, 0x62006200u, 0x63806380u, 0x63e063e0u};  // 1024 - (1024 >> 2 i)
  const unsigned c[2] = {sd_prmt(z, 0xe4e4e4e4u, 0x4040 + kAt * 0x101), sd_prmt(z, 0xe4e4e4e4u, 0x4141 + kAt * 0x101)};
  sd_zeros_of out;
#pragma unroll
  for (int s = 0; s < )",
                     8 / bits, R"(; ++s)
#pragma unroll
    for (int i = 0; i < 2; ++i) out.c[i][s] = s ? sd_fma2(c[i], one, from[s * )",
                     bits / 2, R"(]) : c[i];
  return out;
}
template <int kProduct> static inline void sd_take(unsigned (&a)[4], const Vec<unsigned, 4>& words, const sd_zeros_of& zeros) {
  const unsigned word = words.e[kProduct / )",
                     per, R"(];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int bit = )",
                     width, " * (kProduct % ", per, R"( * 4 + i), low = bit % 8;
    const unsigned number = sd_and_or(word >> (bit - low), )",
                     mask, R"(u << low, 0x64006400u);
    a[i] = sd_fma2(number, (0x3c00u - (low << 10)) * 0x10001u, zeros.c[i % 2][low / )",
                     width, R"(]);
  }
}
)");
  return out + cat(R"(struct sd_zeros_of { unsigned c[2]; };
template <int kAt> static inline sd_zeros_of sd_zeros(unsigned z) {
  return {{sd_prmt(z, 0xc3c3c3c3u, 0x4040 + kAt * 0x101), sd_prmt(z, 0xc3c3c3c3u, 0x4141 + kAt * 0x101)}};
}
template <int kProduct> static inline void sd_take(unsigned (&a)[4], const Vec<unsigned, 4>& words, const sd_zeros_of& zeros) {
  const unsigned word = words.e[kProduct / )",
                   per, R"(];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a[i] = sd_fma2(sd_and_or(word >> )",
                   width, " * (kProduct % ", per, " * 4 + i), ", mask,
                   R"(u, 0x43004300u), 0x3f803f80u, zeros.c[i % 2]);
}
)");
}

// The weights that a nest reads in words.
struct Words {
  WordsLayout layout;
  int64_t zero = 0;
  loop::BufferId words;
  std::optional<loop::BufferId> scales, zeros;
};

Words words_of(const loop::Program& program, const loop::Nest& nest, const loop::Block& block,
               WordsLayout layout) {
  Words out{
      .layout = layout, .zero = kernels::zero_of(nest.schedule), .words = {}, .scales = {}, .zeros = {}};
  const auto shape = kernels::scales_shape(layout);
  for (const loop::Stmt& stmt : block) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load || program[load->access.buffer].storage != loop::Storage::kWeight) continue;
    const loop::Buffer& buffer = program[load->access.buffer];
    if (buffer.dtype == DType::kI32)
      out.words = load->access.buffer;
    else if (buffer.dtype == DType::kU8)
      out.zeros = load->access.buffer;
    else if (buffer.shape == shape)
      out.scales = load->access.buffer;
  }
  STRIDEC_CHECK(out.words.valid(), nest.name);
  return out;
}

// What both kernels print of words: loads of a chunk, its zero points and scales.
class WordsText {
 public:
  WordsText(KernelText& text, const loop::Program& program, const Words& words) : text_(text), w_(words) {
    words_ = text.pointer(w_.words);
    if (w_.scales) {
      scales_ = text.pointer(*w_.scales);
      scale_dtype_ = program[*w_.scales].dtype;
      if (scale_dtype_ != DType::kF32) text.use(cat("from.", name(scale_dtype_)));
    }
    if (w_.zeros) zeros_ = text.pointer(*w_.zeros);
  }

  // sd_load_chunk(chunk of words, tile, chunk): what a lane needs of it, in memory's form.
  void print_loads() const {
    const WordsLayout& l = w_.layout;
    text_.line(
        cat("struct Chunk { Vec<unsigned, 4> words;",
            w_.scales ? cat(" Vec<", text_.storage_type(scale_dtype_), ", ", pairs(), "> scales;") : "",
            w_.zeros ? cat(" Vec<unsigned char, ", pairs(), "> zeros;") : "", " };"));
    // The chunk's number in two parts, the second of which is known to the compiler: loads differ by offsets.
    text_.open("const auto load_chunk = [&](Chunk& to, int64_t tile, int64_t first, int warps)");
    text_.line(cat("to.words = sd_load<4>((const unsigned*)", words_, " + ((tile * ", l.chunks(),
                   " + first) * 128 + lane * 4) + warps * ", kWarps * 128, ");"));
    const int64_t group = l.group() / l.chunk();
    const std::string number = group == 0            ? "0"
                               : kWarps % group == 0 ? cat("first / ", group)
                                                     : cat("(first + warps * ", kWarps, ") / ", group),
                      behind = group > 0 && kWarps % group == 0
                                   ? cat(" + warps * ", kWarps / group * 8 * pairs())
                                   : "";
    const std::string at =
        cat(" + (((tile * ", l.groups(), " + ", number, ") * 8 + lane / 4) * ", pairs(), ")", behind, ")");
    if (w_.scales) text_.line(cat("to.scales = sd_load<", pairs(), ">(", scales_, at, ";"));
    if (w_.zeros) text_.line(cat("to.zeros = sd_load<", pairs(), ">(", zeros_, at, ";"));
    text_.close(";");
  }
  // Registers of a chunk.
  int registers() const {
    const int scales = w_.scales ? pairs() * byte_size(scale_dtype_) : 0, zeros = w_.zeros ? pairs() : 0;
    return 4 + (scales + 3) / 4 + (zeros + 3) / 4;
  }
  std::string zeros(const std::string& chunk, int64_t block) const {
    if (!w_.zeros) return cat("sd_zeros<0>(", w_.zero * 0x101, "u)");
    return cat("sd_zeros<", block % 2 * 2, ">(sd_word<", block / 2, ">(", chunk, ".zeros))");
  }
  // Of column g, high: g + 8.
  std::string scale(const std::string& chunk, int64_t block, int high) const {
    const std::string stored = cat(chunk, ".scales.e[", 2 * block + high, "]");
    return scale_dtype_ == DType::kF32 ? stored : cat("sd_from_", name(scale_dtype_), "(", stored, ")");
  }

 private:
  KernelText& text_;
  const Words& w_;
  int pairs() const { return static_cast<int>(2 * w_.layout.blocks()); }

  std::string words_, scales_, zeros_;
  DType scale_dtype_ = DType::kF32;
};

MatrixKernel kernel_of(DType element, int row_tiles) {
  return {.name = kernels::kWordsProduct,
          .family = MatrixFamily::kWords,
          .element_bytes = byte_size(element),
          .rows = 8 * row_tiles,
          .columns = 16,
          .depth = 16,
          .warps_rows = 1,
          .warps_columns = kWarps,
          .stages = 1,
          .blocks_sm = 1};
}

// Rows, columns and depth of the product.
kernels::MatrixPlan plan_of(const loop::Program& program, const loop::Nest& nest) {
  const auto contraction = kernels::match_contraction(nest);
  STRIDEC_CHECK(contraction.has_value(), nest.name);
  const auto in_words = [&](const kernels::Factor& factor) {
    return std::any_of(factor.slice.begin(), factor.slice.end(), [&](const loop::Stmt* stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt->node);
      return load && program[load->access.buffer].storage == loop::Storage::kWeight &&
             program[load->access.buffer].dtype == DType::kI32;
    });
  };
  const kernels::Factor& weight = contraction->factors[in_words(contraction->factors[0]) ? 0 : 1];
  kernels::MatrixPlan plan;
  for (const loop::Dim& dim : nest.dims)
    (weight.vars.contains(dim.var) ? plan.columns : plan.rows).push_back(dim.var);
  plan.depth = loop::vars_of(contraction->reduce->dims);
  return plan;
}

DType element_of(const loop::Nest& nest, const kernels::MatrixPlan& plan) {
  const auto contraction = kernels::match_contraction(nest);
  const bool first = contraction->factors[0].vars.contains(plan.columns[0]);
  return kernels::element_of(nest, *contraction, contraction->factors[first ? 1 : 0]);
}

class Emitter {
 public:
  // `vectors`: runs of k of the other factor are loaded at once.
  Emitter(const loop::Program& program, const loop::Nest& nest, int row_tiles, bool vectors)
      : row_tiles_(row_tiles),
        vectors_(vectors),
        kernel_(kernel_of(element_of(nest, plan_of(program, nest)), row_tiles)),
        f_(program, nest, kernel_, plan_of(program, nest), vectors),
        epilogue_(f_, vectors),
        words_(words_of(
            program, nest, f_.contraction.reduce->body,
            kernels::to_layout(nest.schedule, extent_of(f_.columns).value(), extent_of(f_.depth).value()))),
        text_(f_.text, program, words_) {
    for (const loop::Stmt* stmt : f_.a->slice)
      if (const auto* load = std::get_if<loop::Load>(&stmt->node)) row_ = &load->access;
    STRIDEC_CHECK(row_, nest.name);
  }

  // Nothing where no sizes allow vectors; their condition.
  std::optional<Expr> condition() const {
    const int64_t run = words_.layout.run();
    if (words_.layout.depth % run) return std::nullopt;
    const auto contiguous = cuda::contiguous(f_, *row_, f_.depth.back(), run);
    if (!contiguous) return std::nullopt;
    std::vector<Expr> conditions = {*contiguous, epilogue_.condition()};
    for (const Dims* dims : {&f_.rows, &f_.columns}) conditions.push_back(sym::le(extent_of(*dims), kNarrow));
    return sym::simplify(sym::logical_and(conditions), f_.program.facts);
  }
  std::vector<loop::BufferId> aligned() const {
    std::vector<loop::BufferId> out;
    for (loop::BufferId id : epilogue_.aligned())
      if (is_callers(f_.program, id)) out.push_back(id);
    if (is_callers(f_.program, row_->buffer)) out.push_back(row_->buffer);
    return out;
  }
  Expr rows() const { return extent_of(f_.rows); }

  // Blocks stay: while a tile's sums meet and leave, the first weights of the next one are on their way.
  DeviceKernel emit(const GpuTarget& target) {
    const Expr row_tiles = sym::ceildiv(extent_of(f_.rows), kernel_.rows),
               tiles = row_tiles * words_.layout.tiles();
    KernelText& text = f_.text;
    const WordsLayout& l = words_.layout;
    const int64_t step = batch() * kWarps, end = (l.chunks() + 2 * step - 1) / (2 * step) * 2 * step;
    const bool whole = l.chunks() == end;
    const std::string index = f_.index_type();
    text.line("const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;");
    text.line(
        cat("const ", index, " row_tiles = ", text.size(row_tiles), ", blocks = ", text.size(tiles), ";"));
    text_.print_loads();
    text.line(cat("Chunk even[", batch(), "], odd[", batch(), "];"));
    text.open(cat("const auto load_batch = [&](Chunk* to, ", index, " column_tile, int first)"));
    text.line("#pragma unroll");
    text.open(cat("for (int j = 0; j < ", batch(), "; ++j)"));
    text.line(cat(whole ? "" : cat("if (first + j * ", kWarps, " < ", l.chunks(), ") "),
                  "load_chunk(to[j], column_tile, first, j);"));
    text.close();
    text.close(";");
    // The blocks of a tile of columns run side by side: one brings its weights to L2 for all.
    text.line(cat(index, " column_tile = blockIdx.x / row_tiles, first_row = blockIdx.x % row_tiles * ",
                  kernel_.rows, ", first_column = column_tile * ", kernel_.columns, ";"));
    if (target.dependent_launch) wait("launch_dependents");
    text.line("load_batch(even, column_tile, warp);");
    // Weights are no other kernel's; rows are.
    if (target.dependent_launch) wait("wait");
    const int pitch = kernel_.columns + kernels::kSumPadding;
    text.line(cat("alignas(16) __shared__ float all_parts[2][", kWarps, "][", kernel_.rows * pitch, "];"));
    text.line("int turn = 0;");
    text.open(cat("for (", index, " block = blockIdx.x; block < blocks; turn ^= 1)"));
    print_rows();
    text.line(cat("float acc[", row_tiles_, "][4] = {};"));
    text.open("const auto multiply_batch = [&](const Chunk* now, int first)");
    text.line("#pragma unroll");
    text.open(cat("for (int j = 0; j < ", batch(), "; ++j)"));
    text.line(cat("const int chunk = first + j * ", kWarps, ";"));
    if (!whole) text.line(cat("if (chunk >= ", l.chunks(), ") break;"));
    print_chunk();
    text.close();
    text.close(";");
    text.line("block += gridDim.x;");
    text.line(cat("const ", index, " next_tile = (block < blocks ? block : block - gridDim.x) / row_tiles;"));
    text.line("#pragma unroll 1");
    text.open(cat("for (int first = warp; first < ", end, "; first += ", 2 * step, ")"));
    text.line(cat("load_batch(odd, column_tile, first + ", step, ");"));
    text.line("multiply_batch(even, first);");
    text.line(cat("const bool last = first + ", 2 * step, " >= ", end, ";"));
    text.line(
        cat("if (!last || block < blocks) load_batch(even, last ? next_tile : column_tile, last ? warp : "
            "first + ",
            2 * step, ");"));
    text.line(cat("multiply_batch(odd, first + ", step, ");"));
    text.close();
    print_sums();
    text.line(cat("column_tile = next_tile, first_row = block % row_tiles * ", kernel_.rows,
                  ", first_column = column_tile * ", kernel_.columns, ";"));
    text.close();
    Geometry g{.grid = {sym::min(tiles, target.multiprocessors * kBlocks), 1, 1},
               .threads = kThreads,
               .blocks_sm = kBlocks};
    g.dependent_launch = target.dependent_launch;
    return finish(text, std::move(g),
                  cat(memory_if_device(), strip_declarations(), numbers_text(l, numbers_dtype(f_.a_element))));
  }

 private:
  static constexpr int64_t kNarrow = 0x7fff0000;

  bool pieces() const { return f_.a_element == DType::kF32; }
  int count() const { return pieces() ? 3 : 1; }

  // The epilogue's moves.
  static std::string memory_if_device() {
    return cat("#ifndef STRIDEC_EMULATE\n", memory_declarations(), R"(#else
template <int kBytes> static inline void move_wide(void* to, const void* from) { __builtin_memcpy(to, from, kBytes); }
#endif
)");
  }

  void wait(const char* what) {
    f_.text.line(cat("#ifndef STRIDEC_EMULATE\n  asm volatile(\"griddepcontrol.", what,
                     ";\" ::: \"memory\");\n#endif"));
  }

  // Pointers to the lane's rows.
  void print_rows() {
    KernelText& text = f_.text;
    const std::string type = text.storage_type(f_.program[row_->buffer].dtype);
    text.line(cat("const ", type, "* rows[", row_tiles_, "];"));
    text.line(cat("bool live[", row_tiles_, "];"));
    text.line("#pragma unroll");
    text.open(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
    text.line(
        cat("const ", f_.index_type(), " row = first_row + (", f_.index_type(), ")(8 * i + lane / 4);"));
    text.line(cat("live[i] = row < (", f_.index_type(), ")", text.size(extent_of(f_.rows)), ";"));
    Body body = f_.body();
    f_.print_indices(f_.rows, "(live[i] ? row : 0)", body);
    for (const loop::Dim& dim : f_.depth) body.set_index(dim.var, "0");
    text.line(cat("rows[i] = ", text.pointer(row_->buffer), " + ", body.offset(*row_), ";"));
    text.close();
  }

  // The rows' fragments for the products of a span from k on: `b`, pairs of k.
  void print_fragments() {
    KernelText& text = f_.text;
    const int64_t run = words_.layout.run(), depth = words_.layout.depth;
    const std::string inside = depth % words_.layout.chunk() == 0 ? "" : cat(" && k < ", depth);
    text.line(cat("unsigned b[", row_tiles_, "][", count(), "][", run / 2, "];"));
    text.line("#pragma unroll");
    text.open(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
    const std::string type = pieces() ? "float" : "unsigned", words = cat(pieces() ? run : run / 2);
    text.line(cat("Vec<", type, ", ", words, "> x = {};"));
    if (vectors_) {
      text.line(cat("if (live[i]", inside, ") x = sd_load<", words, ">((const ", type, "*)(rows[i] + k));"));
    } else {
      text.line("#pragma unroll");
      text.line(cat(
          "for (int e = 0; e < ", run, "; ++e) if (live[i] && k + e < ", depth, ") ",
          pieces() ? "x.e[e] = rows[i][k + e];" : "x.e[e / 2] |= (unsigned)rows[i][k + e] << e % 2 * 16;"));
    }
    text.line("#pragma unroll");
    text.open(cat("for (int e = 0; e < ", run / 2, "; ++e)"));
    if (pieces()) {
      text.line("unsigned three[3];");
      text.line("sd_pieces_of(three, x.e[2 * e], x.e[2 * e + 1]);");
      text.line("for (int p = 0; p < 3; ++p) b[i][p][e] = three[p];");
    } else {
      text.line("b[i][0][e] = x.e[e];");
    }
    text.close();
    text.close();
  }

  void print_chunk() {
    KernelText& text = f_.text;
    const WordsLayout& l = words_.layout;
    const int64_t each = l.span() / 16, in_block = l.step ? std::min(l.step, l.chunk()) / 16 : l.products();
    text.line(cat("float sums[", row_tiles_, "][4];"));
    for (int64_t product = 0; product < l.products(); ++product) {
      const int64_t block = product / in_block;
      if (product % in_block == 0)
        text.line(cat("const sd_zeros_of zeros", block, " = ", text_.zeros("now[j]", block), ";"));
      if (product % each == 0) {
        text.open("");
        text.line(
            cat("const int k = chunk * ", l.chunk(), " + ", product * 16, " + lane % 4 * ", l.run(), ";"));
        print_fragments();
      }
      text.open("");
      text.line("unsigned a[4];");
      text.line(cat("sd_take<", product, ">(a, now[j].words, zeros", block, ");"));
      text.line("#pragma unroll");
      text.open(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
      for (int p = 0; p < count(); ++p) {
        const std::string pair = cat("b[i][", p, "][");
        text.line(cat(product % in_block == 0 && p == 0 ? "sd_mma_first" : "sd_mma", "(sums[i], a, ", pair,
                      product % each * 2, "], ", pair, product % each * 2 + 1, "]);"));
      }
      text.close();
      text.close();
      if (product % each == each - 1) text.close();
      if (product % in_block == in_block - 1) print_scaled(block);
    }
  }

  void print_scaled(int64_t block) {
    KernelText& text = f_.text;
    text.open("");
    for (const int high : {0, 1})
      text.line(cat("const float scale", high, " = ",
                    words_.scales ? text_.scale("now[j]", block, high) : std::string("1.0f"), ";"));
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
    text.line("  #pragma unroll");
    text.line("  for (int h = 0; h < 4; ++h) acc[i][h] += sums[i][h] * (h < 2 ? scale0 : scale1);");
    text.close();
  }

  // Registers of a thread for both batches, of so many chunks, and the rows.
  int64_t taken(int batch) const {
    const int64_t run = words_.layout.run(), row = 14 + run / 2 * count() + (pieces() ? run : 0);
    return int64_t{2} * batch * text_.registers() + row_tiles_ * row;
  }
  int batch() const { return taken(kBatch) <= kTaken ? kBatch : 1; }

  // The next tile's parts lie elsewhere: whoever is late still reads these.
  void print_sums() {
    KernelText& text = f_.text;
    const int pitch = kernel_.columns + kernels::kSumPadding;
    text.line("auto& parts = all_parts[turn];");
    text.line("#pragma unroll");
    text.line(cat("for (int i = 0; i < ", row_tiles_, "; ++i)"));
    text.line("  #pragma unroll");
    text.line(cat("  for (int h = 0; h < 4; ++h) parts[warp][(8 * i + lane % 4 * 2 + h % 2) * ", pitch,
                  " + lane / 4 + h / 2 * 8] = acc[i][h];"));
    text.line("__syncthreads();");
    text.line("float* const sums = parts[0];");
    text.open(cat("for (int at = thread; at < ", kernel_.rows * 16, "; at += ", kThreads, ")"));
    text.line(cat("const int place = at / 16 * ", pitch, " + at % 16;"));
    text.line("float sum = sums[place];");
    text.line("#pragma unroll");
    text.line(cat("for (int w = 1; w < ", kWarps, "; ++w) sum += parts[w][place];"));
    text.line("sums[place] = sum;");
    text.close();
    const MatrixEpilogue::Part tile{kernel_.rows, kernel_.columns, "0", "0", "thread", kThreads, 4};
    epilogue_.print_loads(tile);
    text.line("__syncthreads();");
    epilogue_.print(tile);
  }

  const int row_tiles_;
  const bool vectors_;
  const MatrixKernel kernel_;
  MatrixFrame f_;
  MatrixEpilogue epilogue_;
  Words words_;
  WordsText text_;
  const loop::Access* row_ = nullptr;
};

// A warp writes a chunk of 16 columns, the runs of k that its lanes have.
DeviceNest emit_unpack(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  KernelText text(program, kCudaText);
  const auto& store = std::get<loop::Store>(nest.body.back().node);
  const loop::Buffer& to = program[store.access.buffer];
  const Words words =
      words_of(program, nest, nest.body,
               kernels::to_layout(nest.schedule, nest.dims[0].extent.value(), nest.dims[1].extent.value()));
  const WordsLayout& l = words.layout;
  const DType numbers = numbers_dtype(to.dtype);
  WordsText printed(text, program, words);
  const std::string type = text.storage_type(to.dtype), from = cat("sd_from_", name(numbers));
  text.use(cat("from.", name(numbers)));
  if (to.dtype != DType::kF32) text.use(cat("to.", name(to.dtype)));
  text.line("const int lane = threadIdx.x % 32;");
  text.line(cat("const int64_t number = blockIdx.x * (int64_t)", kWarps, " + threadIdx.x / 32;"));
  text.line(cat("if (number >= ", l.tiles() * l.chunks(), ") return;"));
  text.line(cat("const int64_t tile = number / ", l.chunks(), ", chunk = number % ", l.chunks(), ";"));
  printed.print_loads();
  text.line("Chunk now;");
  text.line("load_chunk(now, tile, chunk, 0);");
  const int64_t in_block = l.step ? std::min(l.step, l.chunk()) / 16 : l.products(), each = l.span() / 16;
  for (int64_t first = 0; first < l.products(); first += each) {
    const int64_t block = first / in_block;
    text.open("");
    text.line(cat("unsigned a[", each, "][4];"));
    for (int64_t product = 0; product < each; ++product)
      text.line(cat("sd_take<", first + product, ">(a[", product, "], now.words, ",
                    printed.zeros("now", block), ");"));
    for (const int high : {0, 1}) {
      text.open("");
      text.line(cat("const float scale = ",
                    words.scales ? printed.scale("now", block, high) : std::string("1.0f"), ";"));
      text.line(cat("Vec<", type, ", ", l.run(), "> out;"));
      text.line("#pragma unroll");
      text.open(cat("for (int e = 0; e < ", l.run(), "; ++e)"));
      text.line(cat("const float value = ", from, "((unsigned short)(a[e / 4][e % 4 / 2 * 2 + ", high,
                    "] >> e % 2 * 16)) * scale;"));
      text.line(cat("out.e[e] = ",
                    to.dtype == DType::kF32 ? std::string("value") : cat("sd_to_", name(to.dtype), "(value)"),
                    ";"));
      text.close();
      text.line(cat("sd_store<", l.run(), ">(", text.pointer(store.access.buffer),
                    " + (tile * 16 + lane / 4 + ", 8 * high, ") * ", l.chunks() * l.chunk(), " + chunk * ",
                    l.chunk(), " + ", first * 16, " + lane % 4 * ", l.run(), ", out);"));
      text.close();
    }
    text.close();
  }
  return only(finish(text,
                     {.grid = {sym::ceildiv(l.tiles() * l.chunks(), kWarps), 1, 1},
                      .threads = kThreads,
                      .waits = target.dependent_launch},
                     cat(strip_declarations(), numbers_text(l, numbers))));
}

}  // namespace

DeviceNest emit_words(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target) {
  if (nest.schedule.kernel == kernels::kWordsUnpack) return emit_unpack(program, nest, target);
  DeviceNest out;
  const bool wide = element_of(nest, plan_of(program, nest)) == DType::kF32;
  const int most = wide ? kMostWideRowTiles : kRowTiles[std::size(kRowTiles) - 1];
  for (const int row_tiles : kRowTiles) {
    if (row_tiles > most) break;
    Emitter emitter(program, nest, row_tiles, true);
    const auto condition = emitter.condition();
    if (!condition || out.is_complete()) break;
    const Expr fits = row_tiles == most ? Expr(1) : sym::le(emitter.rows(), 8 * row_tiles);
    const Expr all = sym::simplify(sym::logical_and(*condition, fits), program.facts);
    if (all.is_const(0)) continue;
    out.choices.push_back({all, emitter.aligned(), {}});
    out.choices.back().launches.push_back(emitter.emit(target));
  }
  if (!out.is_complete()) {
    // The fewest rows that are enough, if any are.
    int row_tiles = most;
    for (const int fewer : kRowTiles)
      if (fewer < row_tiles &&
          program.facts.holds(sym::le(Emitter(program, nest, fewer, false).rows(), 8 * fewer)))
        row_tiles = fewer;
    out.choices.emplace_back();
    out.choices.back().launches.push_back(Emitter(program, nest, row_tiles, false).emit(target));
  }
  return out;
}

}  // namespace stridec::codegen::cuda
