// Small windows; each thread computes several adjacent points.
#include <doctest/doctest.h>

#include "compiler/schedule/heuristics/point_tiling.h"
#include "tests/unit/codegen_cuda/memory_bound.h"

namespace stridec::codegen::cuda {
namespace {

const Program kDepthwise = {"a convolution of each channel by itself",
                            R"(  input x T [d0, d1, d2, d3] ordinal 0
  input w T [3, 3, d3] ordinal 1
  input b f32 [d3] ordinal 2
  output y T [d0, d1, d2, d3] ordinal 0
  inputs (x, w, b)
  outputs (y)
  steps
    nest 0 depthwise (%n<d0, %c<d3, %y<d1, %x<d2)
      %0 : f32 = reduce sum (%r<3, %s<3)
        %1 : T = load x[%n, %y + %r - 1, %x + %s - 1, %c] if %y + %r <= d1 && %x + %s <= d2 && 1 <= %y + %r && 1 <= %x + %s else 0
        %2 : f32 = cast %1
        %3 : T = load w[%r, %s, %c]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      %6 : f32 = load b[%c]
      %7 : f32 = add %0 %6
      %8 : T = cast %7
      store y[%n, %y, %x, %c] %8
)"};

const Program kLarge = {"one of 49 taps", R"(  input x T [d0, d1, d2, d3] ordinal 0
  input w T [7, 7, d3] ordinal 1
  output y T [d0, d1, d2, d3] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 depthwise (%n<d0, %y<d1, %x<d2, %c<d3)
      %0 : f32 = reduce sum (%r<7, %s<7)
        %1 : T = load x[%n, %y + %r - 3, %x + %s - 3, %c] if %y + %r <= d1 + 2 && %x + %s <= d2 + 2 && 3 <= %y + %r && 3 <= %x + %s else 0
        %2 : f32 = cast %1
        %3 : T = load w[%r, %s, %c]
        %4 : f32 = cast %3
        %5 : f32 = mul %2 %4
        yield %5
      %6 : T = cast %0
      store y[%n, %y, %x, %c] %6
)"};

const Program kStrided = {
    "a strided, dilated one with a tap weight for all channels, and the largest of a window", R"(
  input x T [d0, d1, d2, d3] ordinal 0
  input w T [2, 3] ordinal 1
  output y T [d0, (d1 - 1) // 2, (d2 - 1) // 2, d3] ordinal 0
  output z T [d0, (d1 - 1) // 2, (d2 - 1) // 2, d3] ordinal 1
  inputs (x, w)
  outputs (y, z)
  steps
    nest 0 strided (%n<d0, %c<d3, %y<(d1 - 1) // 2, %x<(d2 - 1) // 2)
      %0 : T = reduce sum (%r<2, %s<3)
        %1 : T = load x[%n, 2 * %y + 2 * %r, 2 * %x + %s, %c]
        %2 : T = load w[%r, %s]
        %3 : T = mul %1 %2
        yield %3
      %4 : T = reduce max (%t<3, %u<2)
        %5 : T = load x[%n, 2 * %y + %t, 2 * %x + %u - 1, %c] if 1 <= 2 * %x + %u else 3
        yield %5
      store y[%n, %y, %x, %c] %0
      store z[%n, %y, %x, %c] %4
)"};

const Program kWhere = {"where the largest of a window is, counted along the channels", R"(
  input x T [d0, d1, d2] ordinal 0
  output y i32 [d0, d1 - 2, d2] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 where (%n<d0, %i<d1 - 2, %c<d2)
      %0 : T, %1 : i64 = reduce argmax (%s<3)
        %2 : T = load x[%n, %i + %s, %c]
        %3 : i64 = index (%i + %s) * 1000 + %c
        yield %2 %3
      %4 : i32 = cast %1
      store y[%n, %i, %c] %4
)"};

const Program kFirst = {
    "the first position of the largest of a window: a reduction that reads the result of another", R"(
  input x T [d0, d1, d2, d3] ordinal 0
  output y i32 [d0, (d1 - 1) // 2, (d2 - 1) // 2, d3] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 first (%n<d0, %c<d3, %y<(d1 - 1) // 2, %x<(d2 - 1) // 2)
      %0 : T = reduce max (%r<3, %s<2)
        %1 : T = load x[%n, 2 * %y + %r, 2 * %x + %s - 1, %c] if 1 <= 2 * %x + %s else 0
        yield %1
      %2 : i32 = reduce min (%t<3, %u<2)
        %3 : T = load x[%n, 2 * %y + %t, 2 * %x + %u - 1, %c] if 1 <= 2 * %x + %u else 0
        %4 : bool = eq %3 %0
        %5 : i32 = index 2 * %t + %u
        %6 : i32 = constant 100
        %7 : i32 = select %4 %5 %6
        yield %7
      store y[%n, %y, %x, %c] %2
)"};

TEST_CASE("windows of neighbouring points") {
  for (const char* dtype : {"f16", "bf16", "f32"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {1, 5, 7, 16}, {2, 4, 9, 24}, {1, 1, 2, 8}, {1, 3, 4, 19}, {1, 0, 4, 8}, {0, 3, 3, 8}})
      check(kDepthwise, dtype, {shape});
  for (const char* dtype : {"f16", "f32", "f64", "i8", "i32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 9, 15, 16}, {1, 8, 12, 40}, {1, 5, 6, 6}, {3, 3, 3, 32}})
      for (const bool fixed : {false, true}) {
        check(kStrided, dtype, {shape, fixed});
        check(kFirst, dtype, {shape, fixed});
      }
  for (const char* dtype : {"f16", "f32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 8, 16}, {1, 5, 8}, {3, 3, 5}})
      for (const bool fixed : {false, true}) check(kWhere, dtype, {shape, fixed});
}

TEST_CASE("blocks of points along one and two dims, whole and ragged") {
  const std::string orders[] = {"",
                                "; points %x 4",
                                "; points %y 3",
                                "; points %x 3; points %y 2",
                                "; points %y 4; points %x 2",
                                "; points %x 2; points %y 7",
                                "; points %x 4; below 600; fewer %c 4; fewer %y 2"};
  for (const std::string& along : orders)
    for (const bool fixed : {false, true}) {
      for (const std::vector<int64_t>& shape :
           std::vector<std::vector<int64_t>>{{2, 9, 10, 8}, {2, 7, 3, 16}, {0, 4, 4, 8}})
        for (const char* dtype : {"f16", "f32"})
          check(kLarge, dtype, {shape, fixed}, 0, "points %c 4" + along);
      for (const std::vector<int64_t>& shape :
           std::vector<std::vector<int64_t>>{{2, 9, 15, 16}, {3, 8, 12, 8}})
        for (const char* dtype : {"f16", "i8"})
          for (const Program& program : {kStrided, kFirst})
            check(program, dtype, {shape, fixed}, 0, "reorder %n %y %x %c; points %c 8" + along);
      check(kDepthwise, "bf16", {{2, 5, 7, 16}, fixed}, 0, "reorder %n %y %x %c; points %c 8" + along);
    }
}

TEST_CASE("points that neighbours share most with, by what the kernel takes") {
  const auto chosen = [](const std::vector<int64_t>& shape, bool fixed) {
    const loop::Program program = parse(kLarge, "f16", {shape, fixed});
    schedule::LoopPlan plan;
    REQUIRE(schedule::choose_points(program, program.nests[0], gpu_target("sm_90a"), plan));
    return plan;
  };
  const schedule::LoopPlan many = chosen({32, 56, 56, 96}, true);
  CHECK(many.points.size() == 3);  // rows and columns of windows overlap
  CHECK(many.few == 0);
  // With few points, large blocks would leave most of the device idle; for symbolic sizes the run decides.
  const schedule::LoopPlan few = chosen({1, 7, 7, 96}, true), any = chosen({1, 7, 7, 96}, false);
  const auto size = [](const std::vector<schedule::LoopPlan::Split>& block) {
    int64_t out = 1;
    for (const schedule::LoopPlan::Split& split : block) out *= split.factor;
    return out;
  };
  CHECK(size(few.points) < size(many.points));
  CHECK(any.few > 0);
  CHECK(size(any.few_points) < size(any.points));
  const schedule::LoopPlan again = schedule::parse_plan({"", schedule::directives(any)});
  CHECK(schedule::directives(again) == schedule::directives(any));
}

}  // namespace
}  // namespace stridec::codegen::cuda
