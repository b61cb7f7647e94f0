#include "compiler/kernels/gemm.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"

namespace stridec::kernels {
namespace {

constexpr GemmKernel kKernels[] = {
#define STRIDEC_GEMM_KERNEL(name, dtype, bytes, rows, vectors) {name, DType::dtype, bytes, rows, vectors},
#include "compiler/kernels/kernels.def"
#undef STRIDEC_GEMM_KERNEL
};

std::string_view c_type(DType dtype) {
  STRIDEC_CHECK(dtype == DType::kF32 || dtype == DType::kF64);
  return dtype == DType::kF32 ? "float" : "double";
}

std::string parameters(std::string_view element) {
  return cat("long rows, long segments, long run, const ", element, "* const* a_rows, const ", element,
             "* b, long b_stride, ", element, "* tile, long accumulate, const char* ahead, long lines");
}

// Wants: element, L lanes, V vectors, MAX rows, STEP, multiply_add. One k at a time is enough: the loop's own
// instructions hide behind the multiply-adds, and unrolling it only adds code and a remainder.
constexpr std::string_view kTile = R"(
typedef element vec __attribute__((ext_vector_type(L)));
typedef element loose __attribute__((ext_vector_type(L), aligned(sizeof(element))));

template <int R>
static __attribute__((noinline)) void tile_of(long segments, long run, const element* const* a_rows, const element* b,
                                              long b_stride, element* tile, long accumulate, const char* ahead,
                                              long lines) {
  vec acc[R][V];
#pragma clang loop unroll(full)
  for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
    for (int j = 0; j < V; ++j) acc[i][j] = accumulate ? *(const vec*)(tile + (i * V + j) * L) : (vec)(0);
  for (long s = 0; s < segments; ++s, a_rows += MAX) {
    const element* a[R];
#pragma clang loop unroll(full)
    for (int i = 0; i < R; ++i) a[i] = a_rows[i];
#pragma clang loop unroll(disable)
    for (long k = 0; k < run;) {
#pragma clang loop unroll(disable)
      for (long l = 0; l < lines; ++l, ahead += 64) __builtin_prefetch(ahead, 0, 3);
      const long end = run - k < STEP ? run : k + STEP;
#pragma clang loop unroll(disable)
      for (; k < end; ++k, b += b_stride) {
        vec column[V];
#pragma clang loop unroll(full)
        for (int j = 0; j < V; ++j) column[j] = *(const loose*)(b + j * L);
#pragma clang loop unroll(full)
        for (int i = 0; i < R; ++i) {
          const vec row = (vec)(a[i][k]);
#pragma clang loop unroll(full)
          for (int j = 0; j < V; ++j) acc[i][j] = MULTIPLY_ADD(row, column[j], acc[i][j]);
        }
      }
    }
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < R; ++i)
#pragma clang loop unroll(full)
    for (int j = 0; j < V; ++j) *(vec*)(tile + (i * V + j) * L) = acc[i][j];
}
)";

}  // namespace

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

std::string gemm_declaration(const GemmKernel& kernel, const CpuTarget& target) {
  return cat("extern \"C\" __attribute__((visibility(\"hidden\"))) void ", gemm_symbol(kernel, target), "(",
             parameters(c_type(kernel.dtype)), ");\n");
}

std::string gemm_text(const GemmKernel& kernel, const CpuTarget& target) {
  std::string out = cat("// ", kernel.name, "\ntypedef ", c_type(kernel.dtype), " element;\n");
  out += cat("enum { L = ", kernel.lanes(), ", V = ", kernel.vectors, ", MAX = ", kernel.rows,
             ", STEP = ", kGemmStep, " };\n");
  out += cat("#define MULTIPLY_ADD(x, y, z) ",
             target.fma ? "__builtin_elementwise_fma(x, y, z)" : "((z) + (x) * (y))", "\n");
  out += kTile;
  out += cat("\n", gemm_declaration(kernel, target));
  out += cat("void ", gemm_symbol(kernel, target), "(", parameters("element"), ") {\n  switch (rows) {\n");
  for (int rows = 1; rows <= kernel.rows; ++rows) {
    out += rows < kernel.rows ? cat("    case ", rows, ":") : "    default:";
    out += cat(" return tile_of<", rows,
               ">(segments, run, a_rows, b, b_stride, tile, accumulate, ahead, lines);\n");
  }
  return out + "  }\n}\n";
}

}  // namespace stridec::kernels
