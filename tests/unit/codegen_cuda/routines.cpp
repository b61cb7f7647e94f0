// Routines of the library as kernels.
#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"

using namespace stridec;

TEST_CASE("a launch passes the workspace that its kernel has, whatever the sizes") {
  for (const char* n : {"0", "6", "n"}) {
    const loop::Program program = loop::parse_program(
        cat("program p\n", n[0] == 'n' ? "  symbol n = input 0 dim 1 in 0..64\n" : "", "  input x f32 [4, ",
            n, ", 2] ordinal 0\n  input w f32 [", n, ", 2] ordinal 1\n  output y f32 [4, ", n,
            ", 2] ordinal 0\n  inputs (x, w)\n  outputs (y)\n  steps\n    call fourier (x, w) (y) [4, ", n,
            ", 0]\n"));
    const auto& call = std::get<loop::Call>(program.steps.at(0).node);
    const codegen::DeviceNest nest = codegen::cuda::emit_routine(program, call, gpu_target("sm_90a"));
    const codegen::DeviceKernel& kernel = nest.choices.at(0).launches.at(0);
    CHECK(kernel.code.text.find("char* __restrict workspace") != std::string::npos);
    for (const int64_t size : {0, 6}) {
      const auto bytes =
          sym::evaluate(kernel.workspace_bytes, [&](sym::Expr) { return std::optional(size); });
      CHECK(bytes.value_or(0) > 0);
    }
  }
}
