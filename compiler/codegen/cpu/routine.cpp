#include "compiler/codegen/cpu/routine.h"

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/codegen/emit_text.h"
#include "compiler/codegen/fourier.h"
#include "compiler/codegen/nms.h"
#include "compiler/codegen/sort.h"
#include "compiler/loop/library.h"

namespace stridec::codegen::cpu {
namespace {

// The loop over a range of tasks.
constexpr const char* kTaskLoop = "for (int64_t task = first_task; task < end_task; ++task)";

template <class Print>
void print_ranges(KernelText& text, Print&& print) {
  text.open_ranges();
  print();
  text.close();
}

// The random stream is sequential, so there is one task.
Kernel mersenne_uniform(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  const std::string to = text.pointer(call.writes[0]);
  const std::string count = text.size(call.arguments[0]), seed = text.size(call.arguments[1]);
  text.open("if (begin < end)");
  text.line(cat("u32 state[624], x = (u32)", seed, ", at = 624;"));
  text.line("for (u32 i = 0; i < 624; ++i) { state[i] = x; x = 1812433253u * (x ^ x >> 30) + i + 1; }");
  text.open(cat("for (int64_t n = 0; n < ", count, "; ++n)"));
  text.line("u32 word[2];");
  text.open("for (int half = 0; half < 2; ++half)");
  text.open("if (at == 624)");
  text.open("for (u32 i = 0; i < 624; ++i)");
  text.line("const u32 y = (state[i] & 0x80000000u) | (state[i == 623 ? 0 : i + 1] & 0x7fffffffu);");
  text.line("state[i] = state[i < 227 ? i + 397 : i - 227] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);");
  text.close();
  text.line("at = 0;");
  text.close();
  text.line("u32 y = state[at++];");
  text.line("y ^= y >> 11;");
  text.line("y ^= y << 7 & 0x9d2c5680u;");
  text.line("y ^= y << 15 & 0xefc60000u;");
  text.line("word[half] = y ^ y >> 18;");
  text.close();
  text.line(cat(to, "[n] = ((word[0] >> 5) * 67108864.0 + (word[1] >> 6)) / 9007199254740992.0;"));
  text.close();
  text.close();
  return text.finish(1, 1);
}

// Calls runtime/image, which is linked only if this text refers to it.
Kernel image(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  const std::string bytes = text.pointer(call.reads[0]), to = text.pointer(call.writes[0]);
  std::string sizes;
  for (sym::Expr argument : call.arguments) sizes += cat(", ", text.size(argument));
  const bool decode = call.routine == "image_decode";
  text.line(cat(
      "int stridec_", call.routine,
      decode ? "(const void*, int64_t, int64_t, int64_t, int, void*)" : "(const void*, int64_t, int64_t*)",
      " __asm__(\"stridec_", call.routine, "\") __attribute__((visibility(\"hidden\")));"));
  const std::string run = cat("stridec_", call.routine, "(", bytes, sizes, ", ", to, ")");
  text.line(cat("if (begin < end) ", decode ? cat(text.pointer(call.writes[1]), "[0] = ", run, " == 0") : run,
                ";"));
  return text.finish(1, 1);
}

}  // namespace

Kernel emit_routine(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  if (call.routine == "mersenne_uniform") return mersenne_uniform(program, call, target);
  if (call.routine == "image_size" || call.routine == "image_decode") return image(program, call, target);
  if (call.routine == "suppress") {
    KernelText text(program, target);
    print_ranges(text, [&] { print_suppress(text, call, kTaskLoop); });
    return text.finish(call.arguments[0], 1);
  }
  if (call.routine == "fourier") {
    const sym::Expr rows = call.arguments[0];
    const int lanes =
        program.facts.holds(sym::le(rows, 1)) ? 1 : target.lanes(byte_size(program[call.reads[0]].dtype));
    KernelText text(program, target);
    print_ranges(text, [&] { print_fourier(text, program, call, kTaskLoop, lanes); });
    return text.finish(sym::ceildiv(rows, lanes), 1);
  }
  const bool sort = call.routine == "sort";
  if (!sort && call.routine != "topk")
    fail(ErrorKind::kUnsupported, "no-routine", cat("the CPU backend has no routine '", call.routine, "'"));
  KernelText text(program, target);
  print_ranges(text, [&] { print_sort(text, program, call, kTaskLoop); });
  return text.finish(call.arguments[0] * call.arguments[2], 1);
}

}  // namespace stridec::codegen::cpu
