#include "compiler/codegen/cuda/packed_weights/packed_weights_text.h"

#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::PackedLayout;

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
// a * b + c of two pairs, whose results are exact.
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
// Splits x and y into three bf16 each, which add up to them: a piece takes the next 8 bits of the significand. A word of
// `pieces` has a piece of x and one of y.
static inline void sd_pieces_of(unsigned (&pieces)[3], float x, float y) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    pieces[i] = sd_prmt(sd_bits(x), sd_bits(y), 0x7632);
    x -= sd_float(sd_bits(x) & 0xffff0000u);
    y -= sd_float(sd_bits(y) & 0xffff0000u);
  }
}
)";

}  // namespace

DType numbers_dtype(DType element) { return element == DType::kF16 ? DType::kF16 : DType::kBF16; }

std::string numbers_text(const PackedLayout& layout, DType dtype) {
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
  // Eleven bits also hold numbers that are shifted by less than eight.
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

Words words_of(const loop::Program& program, const loop::Nest& nest, const loop::Block& block,
               PackedLayout layout) {
  Words out{
      .layout = layout, .zero = kernels::zero_of(nest.schedule), .words = {}, .scales = {}, .zeros = {}};
  const auto shape = kernels::scales_shape(layout);
  for (const loop::Stmt& stmt : block) {
    const auto* load = std::get_if<loop::Load>(&stmt.node);
    if (!load || program[load->access.buffer].storage != loop::Storage::kParameter) continue;
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

PackedWeightsText::PackedWeightsText(KernelText& text, const loop::Program& program, const Words& words)
    : text_(text), w_(words) {
  words_ = text.pointer(w_.words);
  if (w_.scales) {
    scales_ = text.pointer(*w_.scales);
    scale_dtype_ = program[*w_.scales].dtype;
    if (scale_dtype_ != DType::kF32) text.use(cat("from.", name(scale_dtype_)));
  }
  if (w_.zeros) zeros_ = text.pointer(*w_.zeros);
}

void PackedWeightsText::print_chunk_type() const {
  text_.line(cat("struct Chunk { Vec<unsigned, 4> words;",
                 w_.scales ? cat(" Vec<", text_.storage_type(scale_dtype_), ", ", pairs(), "> scales;") : "",
                 w_.zeros ? cat(" Vec<unsigned char, ", pairs(), "> zeros;") : "", " };"));
}

// Chunk indices differ by compile-time constants, so that loads differ by constant offsets.
void PackedWeightsText::print_loads(int warps) const {
  const PackedLayout& l = w_.layout;
  print_chunk_type();
  const std::string panel = cat("tile / ", l.together()), tile = cat("tile % ", l.together());
  text_.open("const auto load_chunk = [&](Chunk& to, int64_t tile, int64_t first, int warps)");
  text_.line(cat("to.words = sd_load<4>((const unsigned*)", words_, " + ((", panel, " * ", l.chunks(),
                 " + first) * ", l.together() * 128, " + (", tile, " * 128 + lane * 4)) + warps * ",
                 warps * l.together() * 128, ");"));
  const int64_t group = l.group() / l.chunk();
  const std::string number = group == 0           ? "0"
                             : warps % group == 0 ? cat("first / ", group)
                                                  : cat("(first + warps * ", warps, ") / ", group),
                    behind = group > 0 && warps % group == 0
                                 ? cat(" + warps * ", warps / group * l.together() * 8 * pairs())
                                 : "";
  const std::string at = cat(" + (((", panel, " * ", l.groups(), " + ", number, ") * ", l.together() * 8,
                             " + (", tile, " * 8 + lane / 4)) * ", pairs(), ")", behind, ")");
  if (w_.scales) text_.line(cat("to.scales = sd_load<", pairs(), ">(", scales_, at, ";"));
  if (w_.zeros) text_.line(cat("to.zeros = sd_load<", pairs(), ">(", zeros_, at, ";"));
  text_.close(";");
}

int PackedWeightsText::registers() const {
  const int scales = w_.scales ? pairs() * byte_size(scale_dtype_) : 0, zeros = w_.zeros ? pairs() : 0;
  return 4 + (scales + 3) / 4 + (zeros + 3) / 4;
}

std::string PackedWeightsText::zeros(const std::string& chunk, int64_t block) const {
  if (!w_.zeros) return cat("sd_zeros<0>(", w_.zero * 0x101, "u)");
  return cat("sd_zeros<", block % 2 * 2, ">(sd_word<", block / 2, ">(", chunk, ".zeros))");
}

std::string PackedWeightsText::scale(const std::string& chunk, int64_t block, int high) const {
  const std::string stored = cat(chunk, ".scales.e[", 2 * block + high, "]");
  return scale_dtype_ == DType::kF32 ? stored : cat("sd_from_", name(scale_dtype_), "(", stored, ")");
}

kernels::MatrixPlan packed_plan(const loop::Program& program, const loop::Nest& nest) {
  const auto contraction = kernels::match_contraction(nest);
  STRIDEC_CHECK(contraction.has_value(), nest.name);
  const auto in_words = [&](const kernels::Factor& factor) {
    return std::any_of(factor.slice.begin(), factor.slice.end(), [&](const loop::Stmt* stmt) {
      const auto* load = std::get_if<loop::Load>(&stmt->node);
      return load && program[load->access.buffer].storage == loop::Storage::kParameter &&
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

DType packed_element(const loop::Nest& nest, const kernels::MatrixPlan& plan) {
  const auto contraction = kernels::match_contraction(nest);
  const size_t side = kernels::side_of_columns(*contraction, plan.rows, plan.columns);
  return kernels::element_of(nest, *contraction, contraction->factors[1 - side]);
}

}  // namespace stridec::codegen::cuda
