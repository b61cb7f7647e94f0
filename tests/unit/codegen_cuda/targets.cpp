// For every GPU that this build and NVRTC support: builds GEMMs, convolutions, attention, normalisations and
// routines of a fixed grid with their default schedules.
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
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "tests/support/flash_cases.h"
#include "tests/support/matrix_cases.h"
#include "tests/unit/codegen_cuda/memory_bound.h"

namespace stridec::codegen::cuda {
namespace {

struct Case {
  std::string name;
  loop::Program program;
};

Case memory_bound_case(const Program& p, const std::string& dtype, const Sizes& sizes) {
  return {cat(p.name, " of ", dtype), parse(p, dtype, sizes)};
}

Case best_case() {
  return {
      "the best of rows",
      loop::parse_program(
          "program p\n  symbol n = input 0 dim 1 in 64..1048576\n  input x f16 [7, n, 1] ordinal 0\n"
          "  output y f16 [7, 64, 1] ordinal 0\n  output z i64 [7, 64, 1] ordinal 1\n  inputs (x)\n  outputs "
          "(y, z)\n"
          "  steps\n    call topk (x) (y, z) [7, n, 1, 64, 1, 1]\n")};
}

std::vector<Case> grid() {
  std::vector<Case> out;
  const auto add = [&](const test::MatrixCase& c) { out.push_back({c.name, loop::parse_program(c.text)}); };
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
  for (const char* dtype : {"bf16", "f32"})
    out.push_back({cat("attention of ", dtype),
                   loop::parse_program(test::flash_text({.dtype = dtype, .bias = "causal"}))});
  const Program long_norm = {cat(kNorm.name, ", 768 long"), replaced(kNorm.text, "d1", "768")};
  out.push_back(memory_bound_case(long_norm, "bf16", {{1}}));
  out.push_back(memory_bound_case(kNorm, "f32", {{1, 1}}));
  out.push_back(memory_bound_case(kColumnSum, "f16", {{1, 1}}));
  out.push_back(memory_bound_case(kTranspose, "f16", {{1, 1, 1}}));
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
      loop::Program program = c.program;
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
