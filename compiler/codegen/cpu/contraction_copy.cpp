#include "compiler/codegen/cpu/contraction_copy.h"

#include "compiler/base/text.h"

namespace stridec::codegen::cpu {

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
  for (int l = 0; l < lanes; ++l) {
    text.line(cat(vector, " x", l, " = *(const ", loose, "*)((", c.from, ") + (j + ", l, ") * ", c.from_step,
                  " + i);"));
  }
  // Blocks of d x d on either side of the diagonal change places, for d = 1, 2, 4, ...
  for (int d = 1; d < lanes; d *= 2) {
    for (int i = 0; i < lanes; ++i) {
      if (i & d) continue;
      std::string upper, lower;
      for (int l = 0; l < lanes; ++l) {
        upper += cat(", ", l & d ? lanes + l - d : l);
        lower += cat(", ", l & d ? lanes + l : l + d);
      }
      const std::string a = cat("x", i), b = cat("x", i + d);
      text.line(cat("{ const ", vector, " swap = __builtin_shufflevector(", a, ", ", b, upper, "); ", b,
                    " = __builtin_shufflevector(", a, ", ", b, lower, "); ", a, " = swap; }"));
    }
  }
  for (int l = 0; l < lanes; ++l) {
    text.line(cat("*(", loose, "*)((", c.to, ") + (i + ", l, ") * ", c.to_step, " + j) = x", l, ";"));
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
