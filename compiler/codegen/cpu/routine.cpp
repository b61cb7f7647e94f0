#include "compiler/codegen/cpu/routine.h"

#include <algorithm>
#include <iterator>

#include "compiler/base/check.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/sha256.h"
#include "compiler/base/text.h"
#include "compiler/codegen/eigen.h"
#include "compiler/codegen/emit_text.h"
#include "compiler/codegen/fourier.h"
#include "compiler/codegen/nms.h"
#include "compiler/codegen/philox.h"
#include "compiler/codegen/sort.h"
#include "compiler/codegen/user_kernel.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/sym/guard.h"

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

// Prints the generator MT19937 as draw(), which returns a word and advances `state` and `at`.
void print_mersenne(KernelText& text) {
  text.line("u32 state[624], at = 624;");
  text.open("const auto draw = [&]() -> u32");
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
  text.line("return y ^ y >> 18;");
  text.close(";");
}
void print_seeding(KernelText& text, const std::string& seed) {
  text.line(cat("u32 x = (u32)", seed, ";"));
  text.line("for (u32 i = 0; i < 624; ++i) { state[i] = x; x = 1812433253u * (x ^ x >> 30) + i + 1; }");
}

// The random stream is sequential, so there is one task.
Kernel mersenne_uniform(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  const std::string to = text.pointer(call.writes[0]);
  const std::string count = text.size(call.arguments[0]), seed = text.size(call.arguments[1]);
  text.open("if (begin < end)");
  print_mersenne(text);
  print_seeding(text, seed);
  text.open(cat("for (int64_t n = 0; n < ", count, "; ++n)"));
  text.line("const u32 high = draw() >> 5, low = draw() >> 6;");
  text.line(cat(to, "[n] = (high * 67108864.0 + low) / 9007199254740992.0;"));
  text.close();
  text.close();
  return text.finish(1, 1);
}

// Likewise one task.
Kernel mersenne_draw(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  const std::string from = text.pointer(call.reads[0]), to = text.pointer(call.writes[0]),
                    next = text.pointer(call.writes[1]);
  const std::string what = text.size(call.arguments[0]), count = text.size(call.arguments[1]);
  text.open("if (begin < end)");
  print_mersenne(text);
  text.line(cat("const int64_t count = ", count, ", what = ", what, ";"));
  text.line("int64_t kept[3] = {0, 0, 0};");
  text.open(cat("if (", from, "[0] < 0)"));
  print_seeding(text, cat(from, "[1]"));
  text.close();
  text.open("else");
  text.line(cat("at = ", from, "[0] > 624 ? 624 : (u32)", from, "[0];"));
  text.line(cat("for (int i = 0; i < 3; ++i) kept[i] = ", from, "[1 + i];"));
  text.line(cat("for (u32 i = 0; i < 624; ++i) state[i] = (u32)", from, "[4 + i];"));
  text.close();
  text.line("const auto wide = [&]() -> u64 { const u64 high = draw(); return high << 32 | draw(); };");
  text.line(cat("if (what == 0) for (int64_t n = 0; n < count; ++n) ", to, "[n] = draw();"));
  text.line(cat("if (what == 1) for (int64_t n = 0; n < count; ++n) ", to, "[n] = (int64_t)wide();"));
  text.line(cat("if (what == 2) for (int64_t n = 0; n < count; ++n) ", to, "[n] = n;"));
  text.open("if (what == 2) for (int64_t n = 0; n < count - 1; ++n)");
  text.line(cat("const int64_t z = n + draw() % (count - n), moved = ", to, "[z];"));
  text.line(cat(to, "[z] = ", to, "[n];"));
  text.line(cat(to, "[n] = moved;"));
  text.close();
  text.open("if (what == 3) for (int64_t n = 0; n < count; ++n)");
  text.line(cat(to, "[2 * count + n] = kept[0];"));
  text.line("if (kept[0] == 0) for (int i = 1; i < 3; ++i) kept[i] = (int64_t)(wide() & 0x1fffffffffffffu);");
  text.line(cat(to, "[n] = kept[1];"));
  text.line(cat(to, "[count + n] = kept[2];"));
  text.line("kept[0] = kept[0] == 0;");
  text.close();
  text.line(cat(next, "[0] = at;"));
  text.line(cat("for (int i = 0; i < 3; ++i) ", next, "[1 + i] = kept[i];"));
  text.line(cat("for (u32 i = 0; i < 624; ++i) ", next, "[4 + i] = state[i];"));
  text.close();
  return text.finish(1, 1);
}

// Declares a function of runtime/image, which is linked only if this text refers to it. Returns its call.
std::string print_image(KernelText& text, const loop::Call& call, const char* parameters) {
  const std::string bytes = text.pointer(call.reads[0]), to = text.pointer(call.writes[0]);
  std::string sizes;
  for (sym::Expr argument : call.arguments) sizes += cat(", ", text.size(argument));
  text.line(cat("int stridec_", call.routine, parameters, " __asm__(\"stridec_", call.routine,
                "\") __attribute__((visibility(\"hidden\")));"));
  return cat("stridec_", call.routine, "(", bytes, sizes, ", ", to, ")");
}

Kernel image_size(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  const std::string run = print_image(text, call, "(const void*, int64_t, int64_t*)");
  text.line(cat("if (begin < end) ", run, ";"));
  return text.finish(1, 1);
}

Kernel image_decode(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  const std::string run = print_image(text, call, "(const void*, int64_t, int64_t, int64_t, int, void*)");
  text.line(cat("if (begin < end) ", text.pointer(call.writes[1]), "[0] = ", run, " == 0;"));
  return text.finish(1, 1);
}

Kernel suppress(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  print_ranges(text, [&] { print_suppress(text, call, kTaskLoop); });
  return text.finish(call.arguments[0], 1);
}

// Rows that a task of the routine "fourier" transforms at once.
int fourier_lanes(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  const bool one = program.facts.holds(sym::le(call.arguments[0], 1));
  return one ? 1 : target.lanes(byte_size(program[call.reads[0]].dtype));
}

Kernel fourier(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  const int lanes = fourier_lanes(program, call, target);
  KernelText text(program, target);
  print_ranges(text, [&] { print_fourier(text, program, call, kTaskLoop, lanes); });
  return text.finish(sym::ceildiv(call.arguments[0], lanes), 1);
}

Kernel sort(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  print_ranges(text, [&] { print_sort(text, program, call, kTaskLoop); });
  return text.finish(call.arguments[0] * call.arguments[2], 1);
}

// A part draws so many elements at least.
constexpr int64_t kDraws = 1 << 10;
Kernel philox_draw(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  print_ranges(text, [&] { print_philox_draw(text, call, kTaskLoop); });
  return text.finish(philox_tasks(call), kDraws);
}

Kernel eigen(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  KernelText text(program, target);
  print_ranges(text, [&] { print_eigen(text, program, call, kTaskLoop); });
  return text.finish(call.arguments[0], 1);
}

// The bytes that a user's kernel asks for.
sym::Expr user_bytes(const loop::Call& call, const loop::UserKernel& user) {
  return call.arguments[loop::UserArguments(user).last(loop::UserArguments::kScratchBytes)];
}

// The user's function is in a unit of its own, in C. One call computes all, or a range of the parallel
// domain.
Kernel user(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  const auto user = loop::find_user_kernel(call.routine);
  if (!user->c)
    fail(ErrorKind::kUnsupported, "not-on-cpu",
         cat(user->name, " has no kernel in C, so it does not run on CPUs"),
         "compile for a GPU, or add a text 'c' to the kernel");
  const std::string all = cat(target.name, "\n", user_kernel_c(*user, "", target.f16c));
  const std::string symbol = cat("u_", sha256(all.data(), all.size()).substr(0, 16));
  const loop::UserArguments at(*user);
  KernelText text(program, target);
  std::vector<std::string> data, sizes;
  for (size_t t = 0; t < user->tensor_count(); ++t) {
    const size_t own = t - call.reads.size();
    const loop::BufferId buffer = t < call.reads.size() ? call.reads[t] : call.writes[own];
    data.push_back(
        cat("(void*)(", text.pointer(buffer), " + ", text.size(call.arguments[at.offset(t)]), ")"));
  }
  for (size_t i = 0; i < at.last(loop::UserArguments::kFlops); ++i)
    sizes.push_back(text.size(call.arguments[i]));
  const sym::Expr bytes = user_bytes(call, *user),
                  points = call.arguments[at.last(loop::UserArguments::kPoints)];
  const std::string scratch = bytes.is_const(0) ? "0" : text.scratch(bytes);
  text.line(cat("int ", symbol, "(void* const*, const int64_t*, char*, int64_t, int64_t) __asm__(\"", symbol,
                "\") __attribute__((visibility(\"hidden\")));"));
  text.line(cat("void* const data[] = {", join(data, ", "), "};"));
  text.line(cat("const int64_t sizes[] = {", join(sizes, ", "), "};"));
  if (user->parallel)
    text.open_ranges();
  else
    text.open("if (begin < end)");
  const std::string run =
      cat(symbol, "(data, sizes, ", scratch, ", ", user->parallel ? "first_task, end_task" : "0, 1", ")");
  if (user->c->returns) {
    const std::string message =
        text.message(cat(sym::escaped(user->name), ": its kernel returned {0}, which says that it failed"));
    text.line(cat("const int code = ", run, ";"));
    text.line(cat("if (code) { stridec_abi_fail(args, part, ", message, ", code, 0, 0, 0); return; }"));
  } else {
    text.line(cat(run, ";"));
  }
  text.close();
  // A part has so many flops and bytes. Where no flops are declared, the bytes are those of the results.
  constexpr int64_t kWork = 1 << 15;
  const sym::Expr flops = call.arguments[at.last(loop::UserArguments::kFlops)];
  sym::Expr work = flops + call.arguments[at.last(loop::UserArguments::kBytes)];
  if (flops.is_const(0)) {
    work = byte_size(DType::kF32);
    for (size_t d = 0; d < user->writes[0].rank; ++d) work *= call.arguments[at.dim(user->reads.size(), d)];
  }
  const sym::Expr grain = sym::max(1, sym::floordiv(kWork * points, sym::max(work, 1)));
  Kernel kernel = text.finish(user->parallel ? points : sym::Expr(1), user->parallel ? grain : sym::Expr(1));
  kernel.c_support.push_back(user_kernel_c(*user, symbol, target.f16c));
  return kernel;
}

constexpr Routine kRoutines[] = {
    {"sort", sort},
    {"topk", sort},
    {"suppress", suppress},
    {"fourier", fourier},
    {"image_size", image_size},
    {"image_decode", image_decode},
    {"mersenne_uniform", mersenne_uniform},
    {"mersenne_draw", mersenne_draw},
    {"philox_draw", philox_draw},
    {"eigen", eigen},
};

}  // namespace

std::span<const Routine> routines() { return kRoutines; }

Kernel emit_routine(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  if (loop::find_user_kernel(call.routine)) return user(program, call, target);
  const auto found = std::ranges::find(kRoutines, call.routine, &Routine::name);
  STRIDEC_CHECK(found != std::end(kRoutines), call.routine);
  return found->emit(program, call, target);
}

sym::Expr routine_scratch(const loop::Program& program, const loop::Call& call, const CpuTarget& target) {
  std::vector<sym::Expr> pieces;
  if (call.routine == "suppress") pieces = {suppress_scratch(call)};
  if (call.routine == "eigen") pieces = {eigen_scratch(call)};
  if (call.routine == "fourier")
    pieces = {fourier_scratch(program, call, fourier_lanes(program, call, target))};
  if (call.routine == "sort" || call.routine == "topk") pieces = sort_scratch(program, call);
  if (const auto user = loop::find_user_kernel(call.routine)) pieces = {user_bytes(call, *user)};
  return scratch_bytes(pieces);
}

}  // namespace stridec::codegen::cpu
