// Normalisations fused as prologues into GEMMs of few rows: emulated and compared with the interpreter.
#include "compiler/schedule/fusion/norm_prologue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "compiler/base/text.h"
#include "compiler/kernels/norm_prologue.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/dual_gemm.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "tests/support/emulate.h"
#include "tests/support/random_weights.h"

namespace stridec::codegen::cuda {
namespace {

using loop::HostTensor;
using test::random_tensor;

struct Case {
  std::string dtype = "bf16";
  int64_t depth = 256, columns = 192;
  bool layer_norm = false;  // with a mean and a bias
  bool gate = false;        // two GEMMs of the rows, as a dual GEMM
  bool kept = false;        // the normalised rows are an output too
  std::string sizes = "symbol m = input 0 dim 0 in 1..64";
};

std::string product(const Case& c, const std::string& weight, int first) {
  return cat("      %", first, " : f32 = reduce sum (%k", first, "<", c.depth, ")\n        %", first + 1,
             " : ", c.dtype, " = load t[%m, %k", first, "]\n        %", first + 2, " : f32 = cast %",
             first + 1, "\n        %", first + 3, " : ", c.dtype, " = load ", weight, "[%k", first,
             ", %n]\n        %", first + 4, " : f32 = cast %", first + 3, "\n        %", first + 5,
             " : f32 = mul %", first + 2, " %", first + 4, "\n        yield %", first + 5, "\n");
}

std::string text_of(const Case& c) {
  const auto weight = [&](const char* name, int64_t rows, int64_t columns) {
    return cat("  weight ", name, " ", c.dtype, " [", rows > 0 ? cat(rows, ", ") : "", columns, "] bytes ",
               std::max<int64_t>(rows, 1) * columns * 2, " hash 0000000000000000\n");
  };
  std::string out = cat("program p\n  ", c.sizes, "\n  input x ", c.dtype, " [m, ", c.depth, "] ordinal 0\n",
                        weight("g", 0, c.depth), weight("b", 0, c.depth), weight("v", c.depth, c.columns));
  if (c.gate) out += cat(weight("w", c.depth, c.columns), "  arena u ", c.dtype, " [m, ", c.columns, "]\n");
  out +=
      cat(c.kept ? "  output t " : "  arena t ", c.dtype, " [m, ", c.depth, "]", c.kept ? " ordinal 1" : "",
          "\n  output y ", c.dtype, " [m, ", c.columns, "] ordinal 0\n  inputs (x)\n  outputs (y",
          c.kept ? ", t" : "", ")\n  steps\n    nest 0 norm (%m<m)\n");
  const std::string load = cat(" : ", c.dtype, " = load x[%m, %"), over = cat("<", c.depth, ")\n");
  if (c.layer_norm)
    out += cat("      %0 : f32 = reduce sum (%a", over, "        %1", load,
               "a]\n        %2 : f32 = cast %1\n        yield %2\n", "      %3 : f32 = constant ",
               1.0 / static_cast<double>(c.depth), "\n      %4 : f32 = mul %0 %3\n");
  else
    out += cat("      %3 : f32 = constant ", 1.0 / static_cast<double>(c.depth),
               "\n      %4 : f32 = constant 0\n");
  out += cat("      %5 : f32 = reduce sum (%k", over, "        %6", load,
             "k]\n        %7 : f32 = cast %6\n        %8 : f32 = sub %7 %4\n        %9 : f32 = mul %8 %8\n   "
             "     yield %9\n"
             "      %10 : f32 = mul %5 %3\n      %11 : f32 = rsqrt %10\n      for (%j",
             over, "        %12", load,
             "j]\n        %13 : f32 = cast %12\n        %14 : f32 = sub %13 %4\n        %15 : f32 = mul %14 "
             "%11\n        %16 : ",
             c.dtype, " = cast %15\n        %17 : ", c.dtype, " = load g[%j]\n        %18 : ", c.dtype,
             " = mul %16 %17\n");
  if (c.layer_norm)
    out += cat("        %19 : ", c.dtype, " = load b[%j]\n        %20 : ", c.dtype, " = add %18 %19\n");
  out += cat("        store t[%m, %j] ", c.layer_norm ? "%20" : "%18", "\n");
  if (c.gate)
    out += cat("    nest 1 gate (%m<m, %n<", c.columns, ")\n", product(c, "w", 0),
               "      %10 : f32 = sigmoid %0\n      %11 : ", c.dtype,
               " = cast %10\n      store u[%m, %n] %11\n");
  out += cat("    nest ", c.gate ? 2 : 1, " product (%m<m, %n<", c.columns, ")\n", product(c, "v", 0));
  if (c.gate)
    out += cat("      %10 : ", c.dtype,
               " = load u[%m, %n]\n      %11 : f32 = cast %10\n      %12 : f32 = mul %0 %11\n      %13 : ",
               c.dtype, " = cast %12\n      store y[%m, %n] %13\n");
  else
    out += cat("      %10 : ", c.dtype, " = cast %0\n      store y[%m, %n] %10\n");
  return out;
}

// The program with random weights and with normalisations fused as prologues.
loop::Program fused(const std::string& text, std::vector<schedule::Decision>* decisions = nullptr,
                    const char* target = "sm_90a") {
  loop::Program program = test::with_random_weights(loop::parse_program(text));
  loop::verify(program);
  schedule::fuse_dual_gemm(program, gpu_target("sm_90a"));
  loop::eliminate_dead_code(program);
  schedule::fuse_norm_prologues(program, gpu_target(target), decisions);
  loop::eliminate_dead_code(program);
  loop::verify(program);
  return program;
}

int prologues(const loop::Program& program) {
  int count = 0;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    count += launch && kernels::match_row_prologue(program[launch->nest]);
  });
  return count;
}

void check(const Case& c, std::initializer_list<int64_t> rows, int64_t split = 0) {
  INFO(c.dtype, " ", c.depth, " by ", c.columns, " split ", split);
  const std::string text = text_of(c);
  loop::Program program = fused(text);
  const GpuTarget& target = gpu_target("sm_90a");
  REQUIRE(prologues(program) == 1);
  schedule::choose_gpu(program, target);
  if (split > 0)
    for (loop::Nest& nest : program.nests) {
      if (!kernels::match_row_prologue(nest)) continue;
      kernels::MatrixPlan plan = kernels::to_matrix_plan(nest.schedule);
      plan.split = split;
      nest.schedule = kernels::to_schedule(plan);
    }
  program = test::prepacked(std::move(program));
  const loop::Program given = test::with_random_weights(loop::parse_program(text));
  for (const int64_t m : rows) {
    const HostTensor x = random_tensor(program[program.inputs[0]].dtype, {m, c.depth}, static_cast<int>(m));
    const std::vector<HostTensor> want = loop::interpret(given, {x}, {.poison = true});
    size_t choices = 1;
    for (size_t choice = 0; choice < choices; ++choice) {
      INFO(m, " rows, choice ", choice);
      const auto got = test::emulate(program, {x}, target, choice, &choices);
      REQUIRE(got.has_value());
      for (size_t o = 0; o < want.size(); ++o)
        for (int64_t i = 0; i < loop::element_count(want[o]); ++i) {
          const double a = loop::get_number((*got)[o], i), b = loop::get_number(want[o], i);
          if (!(std::fabs(a - b) <= 2e-2 * std::max(1.0, std::fabs(b))))
            FAIL(o, " at ", i, ": ", a, " for ", b);
        }
    }
  }
}

TEST_CASE("products of few rows make the norm in front of them") {
  check({}, {1, 3, 16, 17});
  check({.dtype = "f16", .layer_norm = true}, {1, 2, 7, 16});
}

TEST_CASE("blocks that share the depth make their part of the rows") {
  for (const int64_t split : {1, 2, 4}) check({.depth = 1024, .layer_norm = true}, {1, 5, 16}, split);
}

TEST_CASE("rows that are an output as well are stored by one block") {
  for (const int64_t split : {1, 2}) check({.depth = 512, .kept = true}, {1, 6, 16, 20}, split);
}

TEST_CASE("a gate and what it lets through make their rows together") {
  check({.depth = 512, .columns = 1024, .gate = true}, {1, 4, 8});
}

TEST_CASE("which rows products make, and why others have a kernel of their own") {
  const auto reason = [](const Case& c, const char* target = "sm_90a") {
    std::vector<schedule::Decision> decisions;
    const loop::Program program = fused(text_of(c), &decisions, target);
    REQUIRE(decisions.size() == 1);
    CHECK(decisions[0].fused == (prologues(program) == 1));
    return decisions[0].reason;
  };
  CHECK(reason({}) == "computed by the blocks of the GEMM, of at most 16 rows");
  CHECK(reason({.depth = 1024, .columns = 1024}) == "computed by the blocks of the GEMM, of at most 8 rows");
  CHECK(reason({.sizes = "symbol m = input 0 dim 0 in 32..64"}) ==
        "not computed by the blocks of the GEMM: no tile of the GEMM has room for them");
  CHECK(reason({.depth = 2048, .columns = 1024}) ==
        "not computed by the blocks of the GEMM: no tile of the GEMM has room for them");
  CHECK(reason({.depth = 1024, .columns = 128256}) ==
        "not computed by the blocks of the GEMM: no tile of the GEMM has room for them");
  CHECK(reason({}, "sm_80") ==
        "not computed by the blocks of the GEMM: the target has no tiles that hold rows");
  // If there are always few rows, only the fused kernel exists; otherwise the general kernels are kept too.
  CHECK(fused(text_of({.sizes = "symbol m = input 0 dim 0 in 1..8"})).steps.size() == 1);
  CHECK(fused(text_of({})).steps.size() == 2);
}

TEST_CASE("a row that an epilogue adds is not a prologue's") {
  std::string text = text_of({.columns = 256});
  const std::string store = "      %10 : bf16 = cast %0\n      store y[%m, %n] %10\n";
  text.replace(
      text.find(store), store.size(),
      "      %10 : bf16 = cast %0\n      %11 : bf16 = load t[%m, %n]\n      %12 : bf16 = add %10 %11\n"
      "      store y[%m, %n] %12\n");
  CHECK(prologues(fused(text)) == 0);
}

}  // namespace
}  // namespace stridec::codegen::cuda
