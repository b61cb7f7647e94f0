#include "compiler/base/text.h"
#include "compiler/codegen/cuda/attention/flash_mma.h"

namespace stridec::codegen::cuda {
namespace {

// Tensor cores truncate what exceeds tf32's precision. `rest` is exact: it exceeds tf32 by one bit.
constexpr std::string_view kWords = R"(
static inline void split_word(unsigned& whole, unsigned& rest, unsigned bits) {
  whole = (bits + 0x1000u) & 0xffffe000u;
  rest = __builtin_bit_cast(unsigned, __builtin_bit_cast(float, bits) - __builtin_bit_cast(float, whole));
}
#ifdef STRIDEC_EMULATE
static inline unsigned load_word(unsigned from) { unsigned r; __builtin_memcpy(&r, sd_shared + from, 4); return r; }
static inline unsigned rounded_word(float x) { return x == x ? __builtin_bit_cast(unsigned, x) + 0x1000u : 0x7fffffffu; }
#else
static inline unsigned load_word(unsigned from) {
  unsigned r;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(from) : "memory");
  return r;
}
static inline unsigned rounded_word(float x) { unsigned r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x)); return r; }
#endif
)";

}  // namespace

std::string_view words_declarations() { return kWords; }

// Fragments of 8 32-bit elements along the depth have the same words as those of 16 16-bit elements.
void WordProducts::print_products(const std::string& sums, const std::string& small, int columns, int depth,
                                  int line_bytes, const std::string& q_lane, const std::string& k_lane) {
  const int blocks = columns / 8;
  text_.line(cat("float ", sums, "[", blocks, "][4] = {};"));
  if (twofold_) text_.line(cat("float ", small, "[", blocks, "][4] = {};"));
  text_.line("#pragma unroll");
  text_.open(cat("for (int k = 0; k < ", depth, "; k += 8)"));
  text_.line("unsigned a[4];");
  text_.line(cat("load_matrices(a, ", place_on(q_lane, line_bytes, "0", "k * 4"), ");"));
  if (twofold_) print_split("a", 4);
  text_.line("#pragma unroll");
  text_.open(cat("for (int j = 0; j < ", blocks, "; j += 2)"));
  text_.line("unsigned b[4];");
  text_.line(cat("load_matrices(b, ", place_on(k_lane, line_bytes, "j * 8", "k * 4"), ");"));
  if (twofold_) print_split("b", 4);
  print_pair(cat(sums, "[j + i]"), cat(small, "[j + i]"), "a", "b");
  text_.close();
  text_.close();
  if (!twofold_) return;
  text_.line("#pragma unroll");
  text_.line(cat("for (int j = 0; j < ", blocks, "; ++j)"));
  text_.line("  #pragma unroll");
  text_.line(cat("  for (int e = 0; e < 4; ++e) ", sums, "[j][e] += ", small, "[j][e];"));
}

void WordProducts::print_split(const std::string& name, int count) {
  text_.line(cat("unsigned ", name, "_rest[", count, "];"));
  text_.line("#pragma unroll");
  text_.line(cat("for (int i = 0; i < ", count, "; ++i) split_word(", name, "[i], ", name, "_rest[i], ", name,
                 "[i]);"));
}

// Dependent sums are kept apart.
void WordProducts::print_pair(const std::string& sum, const std::string& small, const std::string& a,
                              const std::string& b) {
  const auto both = [&](const std::string& to, const std::string& left, const std::string& right) {
    text_.line("#pragma unroll");
    text_.line(cat("for (int i = 0; i < 2; ++i) multiply(", to, ", ", left, ", ", right, "[2 * i], ", right,
                   "[2 * i + 1]);"));
  };
  if (twofold_) both(small, a, cat(b, "_rest"));
  both(sum, a, b);
  if (twofold_) both(small, cat(a, "_rest"), b);
}

// A thread's scores of two neighbouring keys serve as those of the depth's first and second half. Any
// assignment of keys to positions of a fragment is correct as long as both factors use it.
void WordProducts::print_sums(const std::string& o, const Weight& weight, int columns, int across,
                              int line_bytes, const std::string& tile) {
  const int blocks = columns / 8;
  text_.line(cat("unsigned a[", blocks, "][4]", twofold_ ? cat(", a_rest[", blocks, "][4]") : "", ";"));
  text_.line("#pragma unroll");
  text_.open(cat("for (int k = 0; k < ", blocks, "; ++k)"));
  text_.line("#pragma unroll");
  text_.open("for (int i = 0; i < 4; ++i)");
  text_.line(cat("const float share = ", weight("[k][i % 2 * 2 + i / 2]"), ";"));
  text_.line(twofold_ ? "split_word(a[k][i], a_rest[k][i], __builtin_bit_cast(unsigned, share));"
                      : "a[k][i] = rounded_word(share);");
  text_.close();
  text_.close();
  text_.line("unsigned v_lane[2];");
  text_.line("#pragma unroll");
  text_.line(cat("for (int i = 0; i < 2; ++i) v_lane[i] = ",
                 place(tile, line_bytes, "lane_id % 4 * 2 + i", "lane_id / 4 * 4"), ";"));
  text_.line("#pragma unroll");
  text_.open(cat("for (int j = 0; j < ", across / 8, "; j += 2)"));
  if (twofold_) text_.line("float sum[2][4] = {}, small[2][4] = {};");
  text_.line("#pragma unroll");
  text_.open(cat("for (int k = 0; k < ", blocks, "; ++k)"));
  text_.line("unsigned b[4];");
  text_.line("#pragma unroll");
  text_.line(cat("for (int i = 0; i < 4; ++i) b[i] = load_word(",
                 place_on("v_lane[i % 2]", line_bytes, "k * 8", "(j + i / 2) * 32"), ");"));
  if (twofold_) {
    print_split("b", 4);
    text_.line("const unsigned (&whole)[4] = a[k], (&whole_rest)[4] = a_rest[k];");
    print_pair("sum[i]", "small[i]", "whole", "b");
  } else {
    print_pair(cat(o, "[j + i]"), "", "a[k]", "b");
  }
  text_.close();
  if (twofold_) {
    text_.line("#pragma unroll");
    text_.line("for (int i = 0; i < 2; ++i)");
    text_.line("  #pragma unroll");
    text_.line(cat("  for (int e = 0; e < 4; ++e) ", o, "[j + i][e] += sum[i][e] + small[i][e];"));
  }
  text_.close();
}

}  // namespace stridec::codegen::cuda
