#include "compiler/codegen/fourier.h"

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/loop/fourier.h"

namespace stridec::codegen {
namespace {

// What the kernel specialises for: passes over the data, by their factors (loop/fourier.h).
struct FourierPlan {
  FourierPlan(const loop::Program& program, const loop::Call& call, int lanes)
      : rows(call.arguments[0]),
        n(call.arguments[1]),
        room(2 * n),
        single(lanes > 1 && !program.facts.holds(sym::ne(rows, 1))) {
    if (!n.is_const()) return;
    int64_t factors[64], largest = 0;
    passes = 0;
    for (int f = fourier::factorize(n.value(), factors); f-- > 0;) {
      passes |= fourier::pass_of(factors[f]);
      if (fourier::pass_of(factors[f]) == 1) largest = std::max(largest, factors[f]);
    }
    room = 2 * largest;
  }

  sym::Expr rows, n;
  sym::Expr room;  // complex numbers that the passes need in addition to two copies of a row
  bool single;     // a run with a single row computes it without vectors
  unsigned passes = fourier::kOwnPasses | 1;
};

}  // namespace

sym::Expr fourier_scratch(const loop::Program& program, const loop::Call& call, int lanes) {
  const FourierPlan plan(program, call, lanes);
  const sym::Expr taken = plan.single ? sym::select(sym::eq(plan.rows, 1), 1, lanes) : sym::Expr(lanes);
  return (2 * plan.n + plan.room) * taken * 2 * byte_size(program[call.reads[0]].dtype);
}

void print_fourier(KernelText& text, const loop::Program& program, const loop::Call& call,
                   const std::string& tasks, int lanes) {
  const DType dtype = program[call.reads[0]].dtype;
  const FourierPlan plan(program, call, lanes);
  const sym::Expr rows = plan.rows, n = plan.n;
  text.use("fourier");
  const std::string x = text.pointer(call.reads[0]), waves = text.pointer(call.reads[1]),
                    y = text.pointer(call.writes[0]), type = text.value_type(dtype);
  const std::string scratch = text.scratch(fourier_scratch(program, call, lanes));
  text.line(cat("const int64_t rows = ", text.size(rows), ", n = ", text.size(n), ";"));
  text.open("const auto transform = [=](auto one, int64_t first, int64_t lanes)");
  text.line("typedef decltype(one) V;");
  text.line("typedef stridec::fourier::Complex<V> C;");
  text.line(cat("typedef stridec::fourier::Transform<V, ", type, ", ",
                call.arguments[2].is_const(0) ? "false" : "true", ", ", plan.passes, "> Rows;"));
  text.line(cat("C* a = (C*)", scratch, ";"));
  text.line(cat(type, "* to = (", type, "*)a;"));
  text.open("for (int64_t k = 0; k < 2 * n; ++k)");
  text.line("for (int64_t l = 0; l < lanes; ++l)");
  text.line(cat("  to[k * lanes + l] = ", x, "[(first + l < rows ? first + l : rows - 1) * 2 * n + k];"));
  text.close();
  text.line(cat("const Rows transform{n, ", waves, "};"));
  text.line(cat("const ", type, "* from = (const ", type, "*)transform.run(a, a + n, a + 2 * n);"));
  text.line("for (int64_t l = 0; l < lanes && first + l < rows; ++l)");
  text.line(
      cat("  for (int64_t k = 0; k < 2 * n; ++k) ", y, "[(first + l) * 2 * n + k] = from[k * lanes + l];"));
  text.close(";");
  text.open(tasks);
  const std::string one = cat("(", type, ")1");
  if (lanes > 1) {
    const std::string many =
        cat("transform((", text.value_type(dtype, lanes), ")1, task * ", lanes, ", ", lanes, ");");
    text.line(plan.single ? cat("if (rows == 1) transform(", one, ", 0, 1); else ", many) : many);
  } else {
    text.line(cat("transform(", one, ", task, 1);"));
  }
  text.close();
}

}  // namespace stridec::codegen
