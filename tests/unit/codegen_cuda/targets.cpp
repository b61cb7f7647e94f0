// For every GPU that this build compiles for and NVRTC knows: products, convolutions, attention, norms and routines of a
// fixed grid, with the schedules that are chosen there, are built as a whole.
#include <doctest/doctest.h>

#include <set>
#include <variant>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/build.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/choose_gpu.h"
#include "tests/support/flash_cases.h"
#include "tests/support/matrix_cases.h"

namespace stridec::codegen::cuda {
namespace {

struct Case {
  std::string name, text;
};

// x [n, c] of a type, normalised along c; `c` is a number or the symbol c.
Case norm_case(const std::string& dtype, const std::string& c) {
  return {cat("norm of ", dtype, " ", c),
          cat("program p\n  symbol n = input 0 dim 0 in 0..1048576\n",
              c == "c" ? "  symbol c = input 0 dim 1 in 1..1048576\n" : "", "  input x ", dtype, " [n, ", c,
              "] ordinal 0\n  output y ", dtype, " [n, ", c,
              "] ordinal 0\n  inputs (x)\n  outputs (y)\n  steps\n    nest 0 norm (%i<n)\n"
              "      %0 : f32 = reduce sum (%j<",
              c, ")\n        %1 : ", dtype, " = load x[%i, %j]\n        %2 : f32 = cast %1\n",
              "        yield %2\n", "      %3 : f32 = rsqrt %0\n      for (%k<", c, ")\n        %4 : ", dtype,
              " = load x[%i, %k]\n        %5 : f32 = cast %4\n        %6 : f32 = mul %5 %3\n        %7 : ",
              dtype, " = cast_sat %6\n        store y[%i, %k] %7\n")};
}

Case columns_case() {
  return {
      "sums of columns",
      "program p\n  symbol n = input 0 dim 0 in 0..1048576\n  symbol c = input 0 dim 1 in 1..1048576\n"
      "  input x f16 [n, c] ordinal 0\n  output y f32 [c] ordinal 0\n  inputs (x)\n  outputs (y)\n  steps\n"
      "    nest 0 columns (%j<c)\n      %0 : f32 = reduce sum (%i<n)\n        %1 : f16 = load x[%i, %j]\n"
      "        %2 : f32 = cast %1\n        yield %2\n      store y[%j] %0\n"};
}

Case turned_case() {
  return {"turned",
          "program p\n  symbol n = input 0 dim 0 in 0..1048576\n  symbol c = input 0 dim 1 in 1..1048576\n"
          "  input x f16 [n, c] ordinal 0\n  output y f16 [c, n] ordinal 0\n  inputs (x)\n  outputs (y)\n  "
          "steps\n"
          "    nest 0 turned (%j<c, %i<n)\n      %0 : f16 = load x[%i, %j]\n      store y[%j, %i] %0\n"};
}

Case best_case() {
  return {"the best of rows",
          "program p\n  symbol n = input 0 dim 1 in 64..1048576\n  input x f16 [7, n, 1] ordinal 0\n"
          "  output y f16 [7, 64, 1] ordinal 0\n  output z i64 [7, 64, 1] ordinal 1\n  inputs (x)\n  outputs "
          "(y, z)\n"
          "  steps\n    call topk (x) (y, z) [7, n, 1, 64, 1, 1]\n"};
}

std::vector<Case> grid() {
  std::vector<Case> out;
  const auto add = [&](const test::MatrixCase& c) { out.push_back({c.name, c.text}); };
  for (const char* dtype : {"f16", "f32", "i8"}) add(test::matmul_case(dtype, "m", "768", "768", true));
  add(test::matmul_case("bf16", "1", "768", "768", false));
  const test::Conv conv{.name = "3x3",
                        .batch = "b",
                        .height = 28,
                        .width = 28,
                        .in = 64,
                        .out = 64,
                        .kernel = 3,
                        .stride = 1,
                        .dilation = 1,
                        .pad = 1,
                        .groups = 1,
                        .channels_last = true,
                        .relu = true};
  for (const char* dtype : {"f16", "f32"}) add(test::convolution_case(dtype, conv));
  test::Conv depthwise = conv;
  depthwise.groups = 64;
  add(test::convolution_case("f16", depthwise));
  out.push_back({"attention", test::flash_text({.dtype = "bf16", .bias = "causal"})});
  out.push_back(norm_case("bf16", "768"));
  out.push_back(norm_case("f32", "c"));
  out.push_back(columns_case());
  out.push_back(turned_case());
  out.push_back(best_case());
  return out;
}

TEST_CASE("every GPU's kernels of a fixed grid are built") {
  const Nvrtc nvrtc("");
  Built built;
  std::set<std::string> names;
  size_t targets = 0;
  for (const GpuTarget& target : gpu_targets()) {
    if (!nvrtc.supports(target)) continue;
    ++targets;
    for (const Case& c : grid()) {
      INFO(c.name, " for ", target.name);
      loop::Program program = loop::parse_program(c.text);
      loop::verify(program);
      schedule::choose_gpu(program, target);
      size_t kernels = 0;
      loop::for_each_step(program.steps, [&](const loop::Step& step) {
        const auto* launch = std::get_if<loop::Launch>(&step.node);
        const auto* call = std::get_if<loop::Call>(&step.node);
        if (!launch && !call) return;
        const DeviceNest made =
            launch ? emit_nest(program, program[launch->nest], target) : emit_routine(program, *call, target);
        CHECK(made.is_complete());
        for (const DeviceChoice& choice : made.choices)
          for (const DeviceKernel& kernel : choice.launches) {
            ++kernels;
            BuiltKernel one = named(kernel, target);
            if (names.insert(one.symbol).second) built.kernels.push_back(std::move(one));
          }
      });
      CHECK(kernels > 0);
    }
  }
  CHECK(targets >= 5);
  std::vector<BuiltKernel*> kernels;
  for (BuiltKernel& kernel : built.kernels) kernels.push_back(&kernel);
  const auto errors = compile_kernels(kernels, {});
  for (size_t i = 0; i < kernels.size(); ++i) {
    const BuiltKernel& kernel = *kernels[i];
    INFO(kernel.symbol, " for ", kernel.target.name, errors[i] ? errors[i]->message : "");
    CHECK(!errors[i]);
    if (errors[i]) continue;
    CHECK(!kernel.image.empty());
    if (!kernel.target.ptx) CHECK(resident_blocks(kernel.resources, kernel.threads, 0, kernel.target) >= 1);
  }
  MESSAGE(kernels.size(), " kernels for ", targets, " targets");
}

}  // namespace
}  // namespace stridec::codegen::cuda
