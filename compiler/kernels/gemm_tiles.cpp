#include "compiler/kernels/gemm_tiles.h"

#include "compiler/base/check.h"
#include "compiler/base/text.h"

namespace stridec::kernels {
namespace {

// Tile register numbers: sums row by row, then a, then b in the remaining ones.
struct Registers {
  explicit Registers(const GemmKernel& kernel) : rows(kernel.rows / kTileRows), columns(kernel.vectors) {
    constexpr int kRegisters = 8;
    spare = kRegisters - rows * columns - rows;
    STRIDEC_CHECK(kernel.rows % kTileRows == 0 && spare >= 1, kernel.name);
  }
  int sum(int i, int j) const { return i * columns + j; }
  int a(int i) const { return rows * columns + i; }
  int b(int j) const { return rows * columns + rows + j % spare; }
  int rows, columns, spare;
};

// Emits one function per number of row tiles, since register numbers are part of the instructions. Prefetches
// go to L1, and those for the next piece of the panel to L2: a line from memory holds one of L1's few fill
// buffers for so long that tile loads wait.
std::string tile_text(const GemmKernel& kernel, const Registers& registers, int rows) {
  const int group = kernel.group();
  std::string out = cat(
      "\nstatic void tiles_", rows, "(long segments, long run, const a_element* const* a_rows, ",
      "const b_element* b, long b_stride, element* tile, long a_step, long accumulate, const char* ahead, ",
      "long lines) {\n");
  auto each_sum = [&](auto&& line) {
    std::string text;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < registers.columns; ++j)
        text += cat(line(registers.sum(i, j),
                         cat("tile + ", (i * kTileRows * registers.columns + j) * kernel.lanes())),
                    "\n");
    return text;
  };
  const std::string tile_step = cat(kernel.columns() * byte_size(kernel.dtype));
  out += "  if (accumulate) {\n";
  out += each_sum([&](int sum, const std::string& at) {
    return cat("    __builtin_ia32_tileloadd64(", sum, ", ", at, ", ", tile_step, ");");
  });
  out += "  } else {\n";
  out +=
      each_sum([&](int sum, const std::string&) { return cat("    __builtin_ia32_tilezero(", sum, ");"); });
  out += "  }\n";
  out += cat("  const long far = segments * run / ", group, " * b_stride * ", byte_size(kernel.b), ";\n");
  out += cat("  for (long s = 0; s < segments; ++s, a_rows += ", kernel.rows, ") {\n",
             "    const char* a = (const char*)a_rows[0];\n",
             "    for (long k = 0; k < run; k += ", kernel.step(), ", a += ", kTileBytes,
             ", b += ", kernel.step() / group, " * b_stride) {\n", "      for (long l = 0; l < ",
             kernel.step() / group / kGemmStep,
             " * lines; ++l, ahead += 64) __builtin_prefetch(ahead, 0, 3), __builtin_prefetch(ahead + far, "
             "0, 2);\n");
  for (int j = 0; j < registers.columns; ++j) {
    out += cat("      __builtin_ia32_tileloadd64(", registers.b(j), ", b + ", j * kernel.lanes() * group,
               ", b_stride * ", byte_size(kernel.b), ");\n");
    for (int i = 0; i < rows; ++i) {
      if (j == 0)
        out += cat("      __builtin_ia32_tileloadd64(", registers.a(i), ", a + ", i * kTileRows,
                   " * a_step, a_step);\n");
      out += cat("      PRODUCT(", registers.sum(i, j), ", ", registers.a(i), ", ", registers.b(j), ");\n");
    }
  }
  out += "    }\n  }\n";
  out += each_sum([&](int sum, const std::string& at) {
    return cat("  __builtin_ia32_tilestored64(", sum, ", ", at, ", ", tile_step, ");");
  });
  return out + "}\n";
}

}  // namespace

std::string tile_product_text(const GemmKernel& kernel) {
  const bool a_signed = kernel.a == DType::kI8, b_signed = kernel.b == DType::kI8;
  const std::string name = kernel.a == DType::kBF16
                               ? std::string("bf16ps")
                               : cat("b", a_signed ? "s" : "u", b_signed ? "s" : "u", "d");
  return cat("#define PRODUCT(sum, row, column) __builtin_ia32_tdp", name, "(sum, row, column)\n");
}

std::string tiles_text(const GemmKernel& kernel, const CpuTarget& target) {
  const Registers registers(kernel);
  std::string out = cat("// ", kernel.name, "\ntypedef ", gemm_type(kernel.dtype), " element;\ntypedef ",
                        gemm_type(kernel.a), " a_element;\ntypedef ", gemm_type(kernel.b), " b_element;\n",
                        tile_product_text(kernel));
  for (int rows = 1; rows <= registers.rows; ++rows) out += tile_text(kernel, registers, rows);

  // Registers of sums and of a have only the existing rows. Those of b have all 16, since their rows are
  // groups of k.
  out += cat(kTileShape, R"(extern "C" __attribute__((visibility("hidden"))) void )",
             gemm_shape_symbol(kernel, target), R"((long rows) {
  if (rows == 0) return __builtin_ia32_tilerelease();
  alignas(64) shape s = {1};
)");
  for (int i = 0; i < registers.rows; ++i) {
    out += cat("  const long rows_", i, " = rows < ", (i + 1) * kTileRows, " ? rows - ", i * kTileRows, " : ",
               kTileRows, ";\n");
    const std::string live = i == 0 ? std::string() : cat("  if (rows_", i, " > 0) ");
    auto set = [&](int r) {
      out += cat(live.empty() ? "  " : live, "s.bytes[", r, "] = ", kTileBytes, ", s.rows[", r, "] = rows_",
                 i, ";\n");
    };
    for (int j = 0; j < registers.columns; ++j) set(registers.sum(i, j));
    set(registers.a(i));
  }
  for (int j = 0; j < registers.spare && j < registers.columns; ++j)
    out += cat("  s.bytes[", registers.b(j), "] = ", kTileBytes, ", s.rows[", registers.b(j),
               "] = ", kTileRows, ";\n");
  out += "  __builtin_ia32_tile_loadconfig(&s);\n}\n\n";

  out += gemm_declaration(kernel, target);
  out += cat("void ", gemm_symbol(kernel, target),
             "(long rows, long segments, long run, const a_element* const* a_rows, const b_element* b, ",
             "long b_stride, element* tile, long accumulate, const char* ahead, long lines) {\n",
             "  const long a_step = rows > 1 ? (const char*)a_rows[1] - (const char*)a_rows[0] : 0;\n");
  for (int rows = 1; rows <= registers.rows; ++rows)
    out += cat(rows < registers.rows ? cat("  if (rows <= ", rows * kTileRows, ")\n    ") : "  ",
               "return tiles_", rows,
               "(segments, run, a_rows, b, b_stride, tile, a_step, accumulate, ahead, lines);\n");
  return out + "}\n";
}

}  // namespace stridec::kernels
