#include "compiler/codegen/cpu/contraction_copy.h"

#include "compiler/base/text.h"

namespace stridec::codegen::cpu {

// Step d swaps the d x d blocks on either side of the diagonal.
void print_turned_square(KernelText& text, const std::string& vectors, int size) {
  for (int d = 1; d < size; d *= 2) {
    for (int i = 0; i < size; ++i) {
      if (i & d) continue;
      std::string upper, lower;
      for (int l = 0; l < size; ++l) {
        upper += cat(", ", l & d ? size + l - d : l);
        lower += cat(", ", l & d ? size + l : l + d);
      }
      const std::string a = cat(vectors, "[", i, "]"), b = cat(vectors, "[", i + d, "]");
      text.line(cat("{ const auto a = ", a, ", b = ", b, "; ", a, " = __builtin_shufflevector(a, b", upper,
                    "); ", b, " = __builtin_shufflevector(a, b", lower, "); }"));
    }
  }
}

void print_transposed_copy(KernelText& text, const TransposedCopy& c, int lanes) {
  const std::string vector = text.value_type(c.dtype, lanes), loose = text.unaligned_type(c.dtype, lanes);
  auto element = [&](const std::string& i, const std::string& j) {
    text.line(cat("(", c.to, ")[(", i, ") * ", c.to_step, " + ", j, "] = (", c.from, ")[(", j, ") * ",
                  c.from_step, " + ", i, "];"));
  };
  text.open("");
  text.line("int64_t j = 0;");
  text.open(cat("for (; j + ", lanes, " <= ", c.columns, "; j += ", lanes, ")"));
  text.line("int64_t i = 0;");
  text.open(cat("for (; i + ", lanes, " <= ", c.rows, "; i += ", lanes, ")"));
  text.line(cat(vector, " x[", lanes, "];"));
  for (int l = 0; l < lanes; ++l) {
    text.line(
        cat("x[", l, "] = *(const ", loose, "*)((", c.from, ") + (j + ", l, ") * ", c.from_step, " + i);"));
  }
  print_turned_square(text, "x", lanes);
  for (int l = 0; l < lanes; ++l) {
    text.line(cat("*(", loose, "*)((", c.to, ") + (i + ", l, ") * ", c.to_step, " + j) = x[", l, "];"));
  }
  text.close();
  text.open(cat("for (; i < ", c.rows, "; ++i)"));
  text.open(cat("for (int64_t l = j; l < j + ", lanes, "; ++l)"));
  element("i", "l");
  text.close();
  text.close();
  text.close();
  text.open(cat("for (; j < ", c.columns, "; ++j)"));
  text.open(cat("for (int64_t i = 0; i < ", c.rows, "; ++i)"));
  element("i", "j");
  text.close();
  text.close();
  text.close();
}

}  // namespace stridec::codegen::cpu
