// Library routines as GPU kernels.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "compiler/base/text.h"
#include "compiler/codegen/cpu/routine.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/library.h"
#include "compiler/loop/text.h"
#include "tests/support/emulate.h"

using namespace stridec;

TEST_CASE("each routine has a reference, a CPU kernel, and a GPU kernel or the reason why not") {
  for (const loop::LibraryRoutine& routine : loop::library_routines()) {
    CAPTURE(routine.name);
    CHECK((routine.run != nullptr));
    const auto cpu = std::ranges::find(codegen::cpu::routines(), routine.name, &codegen::cpu::Routine::name);
    REQUIRE(cpu != codegen::cpu::routines().end());
    CHECK((cpu->emit != nullptr));
    const auto cuda =
        std::ranges::find(codegen::cuda::routines(), routine.name, &codegen::cuda::Routine::name);
    REQUIRE(cuda != codegen::cuda::routines().end());
    CHECK((cuda->emit != nullptr) == cuda->reason.empty());
  }
  CHECK(codegen::cpu::routines().size() == loop::library_routines().size());
  CHECK(codegen::cuda::routines().size() == loop::library_routines().size());
}

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

TEST_CASE("rows are sorted by blocks, and the best of long ones looked for") {
  struct Case {
    int64_t outer, n, inner, kept;  // 0: all
    size_t choices;
  };
  for (const char* dtype : {"f16", "i8", "u8", "i64"})
    for (const Case& c : {Case{3, 37, 1, 5, 4},
                          {2, 300, 3, 0, 2},
                          {1, 9000, 2, 7, 2},
                          {1, 9000, 1, 3, 3},
                          {2, 1, 1, 1, 5},
                          {9, 300, 3, 16, 4},
                          {2, 1500, 1, 16, 2},
                          {2, 3000, 1, 1000, 3},
                          {1, 5000, 2, 2048, 2},
                          {3, 0, 2, 0, 2}})
      for (const int largest : {0, 1}) {
        if (largest != (dtype[0] == 'f') && c.n != 37) continue;
        INFO(dtype, " ", c.outer, "x", c.n, "x", c.inner, " ", c.kept);
        const std::string shape = cat(c.outer, ", n, ", c.inner), kept = c.kept ? cat(c.kept) : "n";
        const loop::Program program = loop::parse_program(
            cat("program p\n  symbol n = input 0 dim 1 in ", c.kept, "..\n  input x ", dtype, " [", shape,
                "] ordinal 0\n  output y ", dtype, " [", c.outer, ", ", kept, ", ", c.inner,
                "] ordinal 0\n  output z i64 [", c.outer, ", ", kept, ", ", c.inner,
                "] ordinal 1\n  inputs (x)\n  outputs (y, z)\n  steps\n    call ", c.kept ? "topk" : "sort",
                " (x) (y, z) [", c.outer, ", n, ", c.inner, c.kept ? cat(", ", c.kept) : "", ", ", largest,
                c.kept ? ", 1" : "", "]\n"));
        const DType type = program[program.inputs[0]].dtype;
        loop::HostTensor x = loop::make_tensor(type, {c.outer, c.n, c.inner});
        uint64_t state = 7;
        for (int64_t i = 0; i < loop::element_count(x); ++i) {
          state = state * 6364136223846793005ull + 1442695040888963407ull;
          const double number =
              static_cast<double>(state >> 33) * 0x1p-31 * 90 - (type == DType::kU8 ? 0 : 45);
          loop::set_number(x, i, is_float(type) && state >> 60 == 0 ? std::nan("") : std::floor(number));
        }
        const std::vector<loop::HostTensor> want = loop::interpret(program, {x});
        size_t choices = 1;
        for (size_t choice = 0; choice < choices; ++choice) {
          const auto got = test::emulate(program, {x}, gpu_target("sm_90a"), choice, &choices);
          REQUIRE(got.has_value());
          for (size_t o = 0; o < want.size(); ++o) {
            REQUIRE((*got)[o].shape == want[o].shape);
            CHECK((*got)[o].bytes == want[o].bytes);
          }
        }
        CHECK(choices == (type == DType::kI64 ? 1 : c.choices));
      }
}
