#include "compiler/kernels/gemm.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/kernels/gemm_tiles.h"

namespace stridec::kernels {
namespace {

constexpr GemmKernel kKernels[] = {
#define STRIDEC_GEMM_KERNEL(name, dtype, bytes, rows, vectors) \
  {name, DType::dtype, DType::dtype, DType::dtype, bytes, rows, vectors, nullptr},
#define STRIDEC_DOT_KERNEL(name, a, b, dtype, instruction, bytes, rows, vectors) \
  {name, DType::a, DType::b, DType::dtype, bytes, rows, vectors, instruction},
#define STRIDEC_PAIR_KERNEL(name, a, b, dtype, bytes, rows, vectors) \
  {name, DType::a, DType::b, DType::dtype, bytes, rows, vectors, nullptr, false, false, true},
#define STRIDEC_DEEP_KERNEL(name, a, b, dtype, instruction, bytes, rows, columns) \
  {name, DType::a, DType::b, DType::dtype, bytes, rows, columns, instruction, false, true},
#define STRIDEC_TILE_KERNEL(name, a, b, dtype, instruction, rows, vectors) \
  {name, DType::a, DType::b, DType::dtype, kTileBytes, rows, vectors, instruction, true},
#define STRIDEC_WINDOW_KERNEL(name, a, b, dtype, instruction)
#include "compiler/kernels/kernels.def"
#undef STRIDEC_GEMM_KERNEL
#undef STRIDEC_DOT_KERNEL
#undef STRIDEC_PAIR_KERNEL
#undef STRIDEC_DEEP_KERNEL
#undef STRIDEC_TILE_KERNEL
#undef STRIDEC_WINDOW_KERNEL
};

std::string parameters(std::string_view a, std::string_view b, std::string_view sum) {
  return cat("long rows, long segments, long run, const ", a, "* const* a_rows, const ", b,
             "* b, long b_stride, ", sum, "* tile, long accumulate, const char* ahead, long lines");
}

// Parameters: element, L lanes, V vectors, MAX rows, STEP, PAUSE, PRODUCT. One k per iteration is enough: the
// FMAs hide the loop overhead, and unrolling would only add code and a remainder loop.
constexpr std::string_view kTile = R"(
typedef element vec __attribute__((ext_vector_type(L)));
typedef element loose __attribute__((ext_vector_type(L), aligned(sizeof(element))));
typedef element a_element;
typedef element b_element;
enum { G = 1 };

template <int R>
struct sums {
  vec acc[R][V];

  __attribute__((always_inline)) void start() {
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) acc[i][j] = (vec)(0);
  }
  __attribute__((always_inline)) void add(const element* const (&a)[R], long k, const element* b) {
    vec column[V];
#pragma clang loop unroll(full)
    for (int j = 0; j < V; ++j) column[j] = *(const loose*)(b + j * L);
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i) {
      const vec row = (vec)(a[i][k]);
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) acc[i][j] = PRODUCT(acc[i][j], row, column[j]);
    }
  }
  __attribute__((always_inline)) void finish(element* tile, long accumulate) {
    if (accumulate)
#pragma clang loop unroll(full)
      for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
        for (int j = 0; j < V; ++j) acc[i][j] += *(const vec*)(tile + (i * V + j) * L);
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) *(vec*)(tile + (i * V + j) * L) = acc[i][j];
  }
};
)";

// The same for groups of k. Parameters: a_element, b_element, element, G elements per group, L lanes, V
// vectors, MAX rows, STEP, PAUSE, PRODUCT(sum, row, column) on 32-bit words, and OFFSET, which is XORed into
// the words of a. A non-zero OFFSET adds 128 to signed bytes; the sums of 128 * b are accumulated separately
// and subtracted at the end.
constexpr std::string_view kDotTile = R"(
typedef element vec __attribute__((ext_vector_type(L)));
typedef int words __attribute__((ext_vector_type(L)));
typedef int loose_words __attribute__((ext_vector_type(L), aligned(1)));
typedef int loose_word __attribute__((aligned(1), may_alias));

template <int R>
struct sums {
  vec acc[R][V], offset[V];

  __attribute__((always_inline)) void start() {
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) acc[i][j] = (vec)(0);
#pragma clang loop unroll(full)
    for (int j = 0; j < V; ++j) offset[j] = (vec)(0);
  }
  __attribute__((always_inline)) void add(const a_element* const (&a)[R], long k, const b_element* b) {
    words column[V];
#pragma clang loop unroll(full)
    for (int j = 0; j < V; ++j) column[j] = *(const loose_words*)(b + j * (L * G));
    if (OFFSET) {
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) offset[j] = PRODUCT(offset[j], (words)(OFFSET), column[j]);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i) {
      const words row = (words)(*(const loose_word*)(a[i] + k)) ^ (words)(OFFSET);
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) acc[i][j] = PRODUCT(acc[i][j], row, column[j]);
    }
  }
  __attribute__((always_inline)) void finish(element* tile, long accumulate) {
    if (accumulate)
#pragma clang loop unroll(full)
      for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
        for (int j = 0; j < V; ++j) acc[i][j] += *(const vec*)(tile + (i * V + j) * L);
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j)
        *(vec*)(tile + (i * V + j) * L) = OFFSET ? acc[i][j] - offset[j] : acc[i][j];
  }
};
)";

// The same for vectors along k. Parameters: a_element, b_element, element, factor (the vector type that
// PRODUCT multiplies), G elements per vector, L lanes, V columns, MAX rows, STEP, PAUSE, and total(vec).
constexpr std::string_view kDeepTile = R"(
typedef factor loose __attribute__((aligned(1), may_alias));

template <int R>
struct sums {
  vec acc[R][V];

  __attribute__((always_inline)) void start() {
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) acc[i][j] = (vec)(0);
  }
  __attribute__((always_inline)) void add(const a_element* const (&a)[R], long k, const b_element* b) {
    // The shorter side stays in registers.
    if constexpr (R < V) {
      factor row[R];
#pragma clang loop unroll(full)
      for (int i = 0; i < R; ++i) row[i] = *(const loose*)(a[i] + k);
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) {
        const factor column = *(const loose*)(b + j * G);
#pragma clang loop unroll(full)
        for (int i = 0; i < R; ++i) acc[i][j] = PRODUCT(acc[i][j], row[i], column);
      }
    } else {
      factor column[V];
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) column[j] = *(const loose*)(b + j * G);
#pragma clang loop unroll(full)
      for (int i = 0; i < R; ++i) {
        const factor row = *(const loose*)(a[i] + k);
#pragma clang loop unroll(full)
        for (int j = 0; j < V; ++j) acc[i][j] = PRODUCT(acc[i][j], row, column[j]);
      }
    }
  }
  __attribute__((always_inline)) void finish(element* tile, long accumulate) {
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i) {
      // Stores whole lines, since readers of a tile compute with all lanes: subnormal numbers in unused ones would be slow.
      vec line = (vec)(0);
#pragma clang loop unroll(full)
      for (int j = 0; j < V; ++j) line[j] = total(acc[i][j]);
      *(vec*)(tile + i * L) = accumulate ? *(const vec*)(tile + i * L) + line : line;
    }
  }
};
)";

// Text of total(vec), the sum over all lanes, by halving.
std::string total_text(int lanes) {
  std::string text =
      "typedef element vec __attribute__((ext_vector_type(L)));\n"
      "static inline __attribute__((always_inline)) element total(vec v) {\n";
  std::string value = "v";
  for (int rest = lanes / 2; rest >= 2; rest /= 2) {
    text += cat("  const auto v", rest, " = ", value, ".lo + ", value, ".hi;\n");
    value = cat("v", rest);
  }
  return cat(text, "  return ", value, ".x + ", value, ".y;\n}\n");
}

// The loops around the `sums` of these templates.
constexpr std::string_view kTileLoops = R"(
struct nothing {};

template <int R, class Rest>
static inline __attribute__((always_inline)) long tile_of(long segments, long run, const a_element* const* a_rows,
                                                          const b_element* b, long b_stride, element* tile,
                                                          long accumulate, const char* ahead, long lines, long left,
                                                          Rest rest) {
  long next = 0;
  sums<R> sum;
  sum.start();
  for (long s = 0; s < segments; ++s, a_rows += MAX) {
    const a_element* a[R];
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i) a[i] = a_rows[i];
#pragma clang loop unroll(disable)
    for (long k = 0; k < run;) {
#pragma clang loop unroll(disable)
      for (long l = 0; l < lines; ++l, ahead += 64) __builtin_prefetch(ahead, 0, 3);
      const long end = run - k < STEP * G ? run : k + STEP * G;
      if constexpr (!__is_same(Rest, nothing)) {
#pragma clang loop unroll(disable)
        while (next < left && k < end) {
          rest(next++);
          const long pause = end - k < PAUSE * G ? end : k + PAUSE * G;
#pragma clang loop unroll(disable)
          for (; k < pause; k += G, b += b_stride) sum.add(a, k, b);
        }
      }
#pragma clang loop unroll(disable)
      for (; k < end; k += G, b += b_stride) sum.add(a, k, b);
    }
  }
  sum.finish(tile, accumulate);
  return next;
}
)";

// kTileLoops for targets where adds_apart(): with few sums, loop instructions take a part of the time, unless
// an iteration has two groups of k.
std::string unrolled_loops() {
  constexpr std::string_view kInner = "unroll(disable)\n      for (; k < end;";
  return replaced(std::string(kTileLoops), kInner, "unroll_count(R * V <= 6 ? 2 : 1)\n      for (; k < end;");
}

// kDotTile for a narrower b.
std::string widening_tile() {
  constexpr std::string_view kLoad = "*(const loose_words*)(b + j * (L * G))";
  return cat(
      "typedef b_element loose_bytes __attribute__((ext_vector_type(L * G), aligned(1), may_alias));\n",
      replaced(std::string(kDotTile), kLoad,
               "(words)__builtin_convertvector(*(const loose_bytes*)(b + j * (L * G)), halves)"));
}

}  // namespace

std::string_view gemm_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float";
    case DType::kF64: return "double";
    case DType::kI32: return "int";
    case DType::kI16: return "short";
    case DType::kBF16: return "unsigned short";
    case DType::kI8: return "signed char";
    case DType::kU8: return "unsigned char";
    default: STRIDEC_CHECK(false, name(dtype));
  }
}

std::span<const GemmKernel> gemm_kernels() { return kKernels; }

const GemmKernel* find_gemm_kernel(std::string_view name) {
  for (const GemmKernel& kernel : kKernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

std::string gemm_symbol(const GemmKernel& kernel, const CpuTarget& target) {
  std::string symbol = cat("stridec_", kernel.name, "_", target.name);
  for (char& c : symbol) {
    if (c == '.' || c == '-') c = '_';
  }
  return symbol;
}

std::string gemm_shape_symbol(const GemmKernel& kernel, const CpuTarget& target) {
  return gemm_symbol(kernel, target) + "_shape";
}

std::string gemm_declaration(const GemmKernel& kernel, const CpuTarget& target) {
  return cat("extern \"C\" __attribute__((visibility(\"hidden\"))) void ", gemm_symbol(kernel, target), "(",
             parameters(gemm_type(kernel.a), gemm_type(kernel.b), gemm_type(kernel.dtype)), ");\n");
}

std::string product_text(const GemmKernel& kernel, const CpuTarget& target) {
  if (kernel.tiles) return tile_product_text(kernel);
  if (kernel.a == kernel.dtype)
    return cat("#define PRODUCT(sum, row, column) ",
               target.fma ? "__builtin_elementwise_fma(row, column, sum)" : "((sum) + (row) * (column))",
               "\n");
  const int bits = kernel.vector_bytes * 8;
  if (kernel.a == DType::kBF16) {
    const int halves = kernel.vector_bytes / 2;
    return cat("typedef __bf16 halves __attribute__((ext_vector_type(", halves, ")));\n",
               "#define PRODUCT(sum, row, column) __builtin_ia32_dpbf16ps_", bits,
               "(sum, (halves)(row), (halves)(column))\n");
  }
  if (kernel.a == DType::kI16) {  // clang forms a single instruction where one exists
    return cat("typedef short halves __attribute__((ext_vector_type(", kernel.vector_bytes / 2, ")));\n",
               "#define PRODUCT(sum, row, column) ((sum) + (vec)__builtin_ia32_pmaddwd", bits,
               "((halves)(row), (halves)(column)))\n");
  }
  if (kernel.pairs)
    return cat("typedef short halves __attribute__((ext_vector_type(", kernel.vector_bytes / 2, ")));\n",
               "typedef char bytes __attribute__((ext_vector_type(", kernel.vector_bytes, ")));\n",
               "#define PRODUCT(sum, row, column) ((sum) + (vec)__builtin_ia32_pmaddwd", bits,
               "(__builtin_ia32_pmaddubsw", bits, "((bytes)(row), (bytes)(column)), (halves)(1)))\n");
  return cat("#define PRODUCT(sum, row, column) __builtin_ia32_vpdpbusd", bits, "(sum, row, column)\n");
}

std::string gemm_template(const GemmKernel& kernel, const CpuTarget& target) {
  STRIDEC_CHECK(!kernel.tiles, kernel.name);
  std::string out = cat("// ", kernel.name, "\ntypedef ", gemm_type(kernel.dtype), " element;\n");
  out += cat("enum { L = ", kernel.lanes(), ", V = ", kernel.vectors, ", MAX = ", kernel.rows,
             ", STEP = ", kGemmStep, ", PAUSE = ", kGemmPause, " };\n");
  if (kernel.deep) {
    out += cat("typedef ", gemm_type(kernel.a), " a_element;\ntypedef ", gemm_type(kernel.b), " b_element;\n",
               "enum { G = ", kernel.group(), " };\n", total_text(kernel.lanes()),
               kernel.a == kernel.dtype ? "typedef vec factor;\n"
                                        : "typedef int factor __attribute__((ext_vector_type(L)));\n");
    out += product_text(kernel, target);
    out += kDeepTile;
  } else if (kernel.group() == 1) {
    out += product_text(kernel, target);
    out += kTile;
  } else {
    out +=
        cat("typedef ", gemm_type(kernel.a), " a_element;\ntypedef ", gemm_type(kernel.b), " b_element;\n");
    out += cat("enum { G = ", kernel.group(), ", OFFSET = ", kernel.a == DType::kI8 ? "(int)0x80808080" : "0",
               " };\n");
    out += product_text(kernel, target);
    out += kernel.widens_b() ? widening_tile() : std::string(kDotTile);
  }
  return out + (kernel.adds_apart(target) ? unrolled_loops() : std::string(kTileLoops));
}

std::string gemm_text(const GemmKernel& kernel, const CpuTarget& target) {
  if (kernel.tiles) return tiles_text(kernel, target);
  std::string out = cat("namespace {\n", gemm_template(kernel, target));
  const std::string taken = parameters("a_element", "b_element", "element");
  constexpr std::string_view kGiven = "segments, run, a_rows, b, b_stride, tile, accumulate, ahead, lines";
  out += cat("\ntemplate <int R>\nstatic __attribute__((noinline)) void rows_of(",
             taken.substr(taken.find("long segments")), ") {\n  tile_of<R>(", kGiven,
             ", 0, nothing());\n}\n}\n");
  out += cat("\n", gemm_declaration(kernel, target));
  out += cat("void ", gemm_symbol(kernel, target), "(",
             parameters(gemm_type(kernel.a), gemm_type(kernel.b), "element"), ") {\n  switch (rows) {\n");
  for (int rows = 1; rows <= kernel.rows; ++rows) {
    out += rows < kernel.rows ? cat("    case ", rows, ":") : "    default:";
    out += cat(" return rows_of<", rows, ">(", kGiven, ");\n");
  }
  return out + "  }\n}\n";
}

}  // namespace stridec::kernels
