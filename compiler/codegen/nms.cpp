#include "compiler/codegen/nms.h"

#include "compiler/base/text.h"

namespace stridec::codegen {

sym::Expr suppress_scratch(const loop::Call& call) { return call.arguments[1] * 20; }

void print_suppress(KernelText& text, const loop::Call& call, const std::string& tasks) {
  const sym::Expr n = call.arguments[1];
  const std::string corners = text.pointer(call.reads[0]), eligible = text.pointer(call.reads[1]),
                    most = text.pointer(call.reads[2]), overlap = text.pointer(call.reads[3]),
                    kept = text.pointer(call.writes[0]), scratch = text.scratch(suppress_scratch(call));
  text.line(cat("const int64_t n = ", text.size(n), ";"));
  text.line(cat("f32* known = (f32*)", scratch, ";"));
  text.open(tasks);
  // Contraction would change the comparison for boxes exactly at the threshold.
  if (!text.is_cuda()) text.line("#pragma clang fp contract(off)");
  text.line(cat("const f32* box = ", corners, " + task * 4 * n;"));
  text.line("int64_t count = 0;");
  text.open("for (int64_t i = 0; i < n; ++i)");
  text.line(cat("bool keep = ", eligible, "[task * n + i] && count < ", most, "[0];"));
  text.open("if (keep)");
  text.line("const f32 x0 = box[i], y0 = box[n + i], x1 = box[2 * n + i], y1 = box[3 * n + i];");
  text.line("const f32 area = (x1 - x0) * (y1 - y0);");
  text.line("unsigned clash = 0;");
  text.open("for (int64_t block = 0; block < count && !clash; block += 64)");
  text.line("const int64_t stop = block + 64 < count ? block + 64 : count;");
  text.open("for (int64_t j = block; j < stop; ++j)");
  text.line("const f32 a0 = known[j], b0 = known[n + j], a1 = known[2 * n + j], b1 = known[3 * n + j];");
  text.line("const f32 wide = (x1 < a1 ? x1 : a1) - (x0 > a0 ? x0 : a0);");
  text.line("const f32 high = (y1 < b1 ? y1 : b1) - (y0 > b0 ? y0 : b0);");
  text.line("const f32 shared = (wide > 0 ? wide : 0) * (high > 0 ? high : 0);");
  text.line(cat("clash |= shared > (area + known[4 * n + j] - shared) * ", overlap, "[0];"));
  text.close();
  text.close();
  text.line("keep = !clash;");
  text.open("if (keep)");
  text.line(
      "known[count] = x0, known[n + count] = y0, known[2 * n + count] = x1, known[3 * n + count] = y1;");
  text.line("known[4 * n + count++] = area;");
  text.close();
  text.close();
  text.line(cat(kept, "[task * n + i] = keep;"));
  text.close();
  text.close();
}

}  // namespace stridec::codegen
