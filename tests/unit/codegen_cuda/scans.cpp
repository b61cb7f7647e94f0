// Running sums and extremes, which teams of threads make tile by tile.
#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/choose/choose_gpu.h"
#include "tests/unit/codegen_cuda/memory_bound.h"

namespace stridec::codegen::cuda {
namespace {

const Program kRunning = {"running sums of rows, and what is left to the end",
                          R"(  input x T [d0, d1] ordinal 0
  output y T [d0, d1] ordinal 0
  output z f32 [d0] ordinal 1
  inputs (x)
  outputs (y, z)
  steps
    nest 0 running (%a<d0)
      %0 : f32 = constant 0.25
      %2 : f32 = scan (%i<d1) [%1 = %0]
        %3 : T = load x[%a, %i]
        %4 : f32 = cast %3
        %7 : f32 = floor %4
        %5 : f32 = add %1 %7
        %6 : T = cast %5
        store y[%a, %i] %6
        yield %5
      store z[%a] %2
)"};

const Program kRunningBack = {"the largest so far of a middle axis, from its end on, each without its own",
                              R"(
  input x T [d0, d1, d2] ordinal 0
  output y T [d0, d1, d2] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 running (%a<d0, %j<d2)
      %0 : T = constant 1
      %2 : T = scan reverse (%i<d1) [%1 = %0]
        %3 : T = load x[%a, %i, %j]
        store y[%a, %i, %j] %1
        %5 : T = max %3 %1
        yield %5
)"};

TEST_CASE("running sums are a team's work") {
  for (const char* dtype : {"f16", "f32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 1024}, {19, 333}, {2, 9001}, {1, 9008}, {2, 0}, {70, 7}})
      for (const bool fixed : {false, true}) check(kRunning, dtype, {shape, fixed});
  for (const char* dtype : {"f32", "i32", "f64"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {2, 300, 7}, {1, 5000, 2}, {1, 70, 40}, {2, 600, 33}, {1, 0, 40}, {2, 5, 0}})
      for (const bool fixed : {false, true}) check(kRunningBack, dtype, {shape, fixed});
  // One that no step can be taken from by itself stays a thread's.
  loop::Program program = parse(kRunning, "f32", {{64, 1024}, true});
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  CHECK(loop::to_string(program.nests[0].schedule) == "team 32");
  program = parse({"", replaced(kRunning.text, "add %1 %7", "sub %7 %1")}, "f32", {{64, 1024}, true});
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  CHECK(loop::to_string(program.nests[0].schedule) == "");
}

}  // namespace
}  // namespace stridec::codegen::cuda
