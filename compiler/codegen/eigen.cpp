#include "compiler/codegen/eigen.h"

#include "compiler/base/text.h"

namespace stridec::codegen {

sym::Expr eigen_scratch(const loop::Call& call) {
  constexpr int64_t kComplexBytes = 2 * sizeof(double);
  const sym::Expr n = call.arguments[1];  // room_of() in loop/eigen.h
  return (sym::select(sym::ne(call.arguments[3], 0), 2, 1) * n * n + 3 * n) * kComplexBytes;
}

void print_eigen(KernelText& text, const loop::Program& program, const loop::Call& call,
                 const std::string& tasks) {
  text.use("eigen");
  const std::string type = text.value_type(program[call.reads[0]].dtype);
  const std::string x = text.pointer(call.reads[0]), values = text.pointer(call.writes[0]),
                    vectors = text.pointer(call.writes[1]), scratch = text.scratch(eigen_scratch(call));
  const auto size = [&](size_t i) { return text.size(call.arguments[i]); };
  text.line(cat("const int64_t n = ", size(1), ", parts = ", size(2), " ? 2 : 1, wanted = ", size(3), ";"));
  text.open(tasks);
  text.line(cat("stridec::eigen::solve<", type, ">(", x, " + task * n * n * parts, n, parts == 2, ", values,
                " + task * n * 2, wanted ? ", vectors, " + task * n * n * 2 : (", type,
                "*)0, (stridec::eigen::Complex*)", scratch, ");"));
  text.close();
}

}  // namespace stridec::codegen
