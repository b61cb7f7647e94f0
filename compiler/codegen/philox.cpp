#include "compiler/codegen/philox.h"

#include "compiler/base/text.h"
#include "compiler/loop/philox.h"

namespace stridec::codegen {

sym::Expr philox_tasks(const loop::Call& call) { return sym::max(call.arguments[1], 1); }

void print_philox_draw(KernelText& text, const loop::Call& call, const std::string& tasks) {
  for (const char* snippet : {"log.f64", "sin.f64", "cos.f64"}) text.use(snippet);
  text.use("philox");
  const std::string from = text.pointer(call.reads[0]), to = text.pointer(call.writes[0]),
                    next = text.pointer(call.writes[1]);
  const auto size = [&](size_t i) { return text.size(call.arguments[i]); };
  text.open("struct Math");
  for (const char* function : {"log", "sin", "cos"})
    text.line(cat("static inline f64 ", function, "(f64 x) { return sd_", function, "(x); }"));
  text.line("static inline f64 sqrt(f64 x) { return __builtin_elementwise_sqrt(x); }");
  text.close(";");
  text.line(cat("const int64_t what = ", size(0), ", count = ", size(1), ", layout = ", size(2), ";"));
  text.line(cat("const stridec::philox::Deal deal(", from, ", what, count, layout);"));
  text.open(tasks);
  text.open("if (task == 0)");
  text.line(cat(next, "[0] = ", from, "[0];"));
  text.line(cat(next, "[1] = ", from, "[1] + deal.advance();"));
  text.line(cat(next, "[2] = ", from, "[2];"));
  text.close();
  text.line("if (task >= count) continue;");
  text.line("const auto place = deal.place(task);");
  text.line(cat("const auto block = stridec::philox::block_of(", from, ", place);"));
  const std::string at = "(block, place.lane)", element = cat(to, "[task] = ");
  const sym::Expr what = call.arguments[0];
  if (what.is_const(philox::kNormals))
    text.line(cat(element, "stridec::philox::normal<Math>", at, ";"));
  else if (what.is_const(philox::kWideNormals))
    text.line(cat(element, "stridec::philox::wide_normal<Math>", at, ";"));
  else if (what.is_const(philox::kLogarithms))
    text.line(cat(element, "stridec::philox::logarithm<Math>", at, ";"));
  else if (what.is_const(philox::kExponentials))
    text.line(cat(element, "stridec::philox::negative_logarithm<Math>", at, ";"));
  else
    text.line(cat(element, "what == ", philox::kWideWords, " ? stridec::philox::wide_word", at,
                  " : (int64_t)block.word[place.lane];"));
  text.close();
}

}  // namespace stridec::codegen
