// Kernels that memory bounds, emulated, against the interpreter: rows, columns, tiles and single points, by every choice
// that the sizes allow.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/choose_gpu.h"
#include "compiler/schedule/choose_points.h"
#include "tests/support/emulate.h"
#include "tests/support/random_tensor.h"
#include "tests/support/replaced.h"

namespace stridec::codegen::cuda {
namespace {

using test::replaced;

using loop::HostTensor;

struct Sizes {
  std::vector<int64_t> shape;  // of x
  bool fixed = false;          // numbers in the program instead of symbols
};

// A program over x [d0, d1, ..]; `text` has sizes d0, d1, .. and the dtype T.
struct Program {
  std::string name, text;
};

loop::Program parse(const Program& p, const std::string& dtype, const Sizes& sizes) {
  std::string symbols, inputs, text = p.text;
  for (size_t d = 0; d < sizes.shape.size(); ++d) {
    if (sizes.fixed)
      text = replaced(text, cat("d", d), cat(sizes.shape[d]));
    else
      symbols += cat("  symbol d", d, " = input 0 dim ", d, " in 0..1048576\n");
  }
  return loop::parse_program(cat("program p\n", symbols, replaced(text, "T", dtype)));
}

HostTensor random_tensor(const loop::Program& program, loop::BufferId id, const std::vector<int64_t>& x,
                         int seed) {
  const loop::Buffer& buffer = program[id];
  const auto shape = test::shape_of(buffer, [&](const std::string& symbol) {
    return x[static_cast<size_t>(std::atoi(symbol.c_str() + 1))];
  });
  return test::random_tensor(buffer.dtype, shape, seed, 2);
}

double tolerance(DType dtype) {
  if (dtype == DType::kF64) return 1e-12;
  if (dtype == DType::kF32) return 1e-5;
  if (dtype == DType::kF16) return 2e-3;
  return is_float(dtype) ? 1.6e-2 : 0;
}

// `team`: threads of a row, instead of those chosen; `schedule`: all of it.
void check(const Program& p, const std::string& dtype, const Sizes& sizes, int team = 0,
           const std::string& schedule = "") {
  INFO(p.name, " of ", dtype, " ", join(sizes.shape, "x", [](int64_t n) { return cat(n); }),
       std::string(sizes.fixed ? " fixed" : ""));
  const loop::Program given = parse(p, dtype, sizes);
  loop::verify(given);
  loop::Program program = given;
  if (!schedule.empty()) program.nests[0].schedule = loop::parse_schedule(schedule);
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  if (team)
    for (loop::Directive& directive : program.nests[0].schedule.directives)
      if (directive.name == "team") directive.args = {cat(team)};
  std::vector<HostTensor> inputs;
  for (loop::BufferId id : given.inputs)
    inputs.push_back(random_tensor(given, id, sizes.shape, static_cast<int>(inputs.size())));
  const std::vector<HostTensor> want = loop::interpret(given, inputs, {.poison = true});
  size_t choices = 1;
  for (size_t choice = 0; choice < choices; ++choice) {
    INFO("choice ", choice, " of ", loop::to_string(program.nests[0].schedule));
    const auto got = test::emulate(program, inputs, gpu_target("sm_90a"), choice, &choices);
    REQUIRE(got.has_value());
    REQUIRE(got->size() == want.size());
    for (size_t o = 0; o < want.size(); ++o) {
      REQUIRE((*got)[o].shape == want[o].shape);
      double worst = 0;
      for (int64_t i = 0; i < loop::element_count(want[o]); ++i) {
        const double x = loop::get_number((*got)[o], i), y = loop::get_number(want[o], i);
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        const double error = std::fabs(x - y) / std::max(1.0, std::fabs(y));
        worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
      }
      CHECK(worst <= tolerance(want[o].dtype));
    }
  }
}

const Program kHalves = {"two rows of a local", R"(  input x T [d0] ordinal 0
  output y T [2, d0] ordinal 0
  local l T [2, d0]
  inputs (x)
  outputs (y)
  steps
    nest 0 halves ()
      for (%i<d0)
        %0 : T = load x[%i]
        %1 : T = add %0 %0
        store l[0, %i] %1
      for (%j<d0)
        %2 : T = load x[%j]
        %3 : T = mul %2 %2
        store l[1, %j] %3
      for (%r<2, %k<d0)
        %4 : T = load l[%r, %k]
        store y[%r, %k] %4
)"};

const Program kColumnSum = {"sums of columns", R"(  input x T [d0, d1] ordinal 0
  output y T [d1] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 sum (%j<d1)
      %0 : T = reduce sum (%i<d0)
        %1 : T = load x[%i, %j]
        yield %1
      store y[%j] %0
)"};

const Program kColumnDot = {"products of columns with a vector", R"(  input x T [d0, d1] ordinal 0
  input w T [d0] ordinal 1
  output y T [d1] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 dot (%j<d1)
      %0 : T = reduce sum (%i<d0)
        %1 : T = load x[%i, %j]
        %2 : T = load w[%i]
        %3 : T = mul %1 %2
        yield %3
      store y[%j] %0
)"};

const Program kColumnArgMax = {"argmax of columns, with a bias", R"(  input x T [d0, d1, d2] ordinal 0
  input b T [d2] ordinal 1
  output y T [d0, d2] ordinal 0
  output z i64 [d0, d2] ordinal 1
  inputs (x, b)
  outputs (y, z)
  steps
    nest 0 argmax (%a<d0, %j<d2)
      %0 : T = load b[%j]
      %1 : T, %2 : i64 = reduce argmax (%i<d1)
        %3 : T = load x[%a, %i, %j]
        %4 : T = add %3 %0
        %5 : i64 = index %i
        yield %4 %5
      store y[%a, %j] %1
      store z[%a, %j] %2
)"};

const Program kMiddle = {"scale by the largest of the middle axis", R"(  input x T [d0, d1, d2] ordinal 0
  output y T [d0, d1, d2] ordinal 0
  local r T [d1]
  inputs (x)
  outputs (y)
  steps
    nest 0 middle (%a<d0, %j<d2)
      %0 : T = reduce max (%i<d1)
        %1 : T = load x[%a, %i, %j]
        yield %1
      for (%i2<d1)
        %2 : T = load x[%a, %i2, %j]
        %3 : T = sub %2 %0
        store r[%i2] %3
      %4 : T = reduce sum (%i3<d1)
        %5 : T = load r[%i3]
        yield %5
      for (%i4<d1)
        %6 : T = load r[%i4]
        %7 : T = add %6 %4
        store y[%a, %i4, %j] %7
)"};

const Program kMiddleWide = {"softmax of the middle axis in f32", R"(  input x T [d0, d1, d2] ordinal 0
  output y T [d0, d1, d2] ordinal 0
  local r f32 [d1]
  inputs (x)
  outputs (y)
  steps
    nest 0 middle (%a<d0, %j<d2)
      %0 : f32 = reduce max (%i<d1)
        %1 : T = load x[%a, %i, %j]
        %2 : f32 = cast %1
        yield %2
      for (%i2<d1)
        %3 : T = load x[%a, %i2, %j]
        %4 : f32 = cast %3
        %5 : f32 = sub %4 %0
        %6 : f32 = exp %5
        store r[%i2] %6
      %7 : f32 = reduce sum (%i3<d1)
        %8 : f32 = load r[%i3]
        yield %8
      for (%i4<d1)
        %9 : f32 = load r[%i4]
        %10 : f32 = div %9 %7
        %11 : T = cast_sat %10
        store y[%a, %i4, %j] %11
)"};

const Program kGroups = {"groups of channels, scaled by their largest and by channels",
                         R"(  input x T [d0, d1, d2] ordinal 0
  input w T [d1] ordinal 1
  output y T [d0, d1, d2] ordinal 0
  inputs (x, w)
  outputs (y)
  steps
    nest 0 groups (%a<d0)
      %0 : T = reduce max (%c<d1, %j<d2)
        %1 : T = load x[%a, %c, %j]
        yield %1
      for (%c2<d1, %j2<d2)
        %2 : T = load x[%a, %c2, %j2]
        %3 : T = add %2 %0
        %4 : T = load w[%c2]
        %5 : T = mul %3 %4
        store y[%a, %c2, %j2] %5
)"};

const Program kRows = {"rows that are scaled by their largest", R"(  input x T [d0, d1] ordinal 0
  output y T [d0, d1] ordinal 0
  local r T [d1]
  inputs (x)
  outputs (y)
  steps
    nest 0 rows (%a<d0)
      %0 : T = reduce max (%i<d1)
        %1 : T = load x[%a, %i]
        yield %1
      for (%i2<d1)
        %2 : T = load x[%a, %i2]
        %3 : T = sub %2 %0
        store r[%i2] %3
      %4 : T = reduce sum (%i3<d1)
        %5 : T = load r[%i3]
        yield %5
      for (%i4<d1)
        %6 : T = load r[%i4]
        %7 : T = add %6 %4
        store y[%a, %i4] %7
)"};

const Program kLongRows = {"where the largest of a few long rows is, plus a bias",
                           R"(  input x T [d0, d1, d2] ordinal 0
  input b T [d0] ordinal 1
  output y T [d0] ordinal 0
  output z i64 [d0] ordinal 1
  inputs (x, b)
  outputs (y, z)
  steps
    nest 0 argmax (%a<d0)
      %0 : T, %1 : i64 = reduce argmax (%i<d1, %j<d2)
        %2 : T = load x[%a, %i, %j]
        %3 : i64 = index %i * 3 + %j
        yield %2 %3
      %4 : T = load b[%a]
      %5 : T = add %0 %4
      store y[%a] %5
      store z[%a] %1
)"};

const Program kSum = {"the sum of everything", R"(  input x T [d0, d1, d2] ordinal 0
  output y T [] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 sum ()
      %0 : T = reduce max (%a<d0, %i<d1, %j<d2)
        %1 : T = load x[%a, %i, %j]
        yield %1
      store y[] %0
)"};

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

const Program kTranspose = {"a transpose with a sum of rows' bias", R"(  input x T [d0, d1, d2] ordinal 0
  input b T [d1] ordinal 1
  output y T [d0, d2, d1] ordinal 0
  inputs (x, b)
  outputs (y)
  steps
    nest 0 turn (%a<d0, %i<d2, %j<d1)
      %0 : T = load x[%a, %j, %i]
      %1 : T = load b[%j]
      %2 : T = add %0 %1
      store y[%a, %i, %j] %2
)"};

const Program kPoints = {"a matrix plus a row, turned where it has two", R"(  input x T [d0, d1] ordinal 0
  input b T [d1] ordinal 1
  output y T [d0, d1] ordinal 0
  output z T [d1, d0] ordinal 1
  inputs (x, b)
  outputs (y, z)
  steps
    nest 0 add (%i<d0, %j<d1)
      %0 : T = load x[%i, %j]
      %1 : T = load b[%j] if %j < 500 else 3
      %2 : T = add %0 %1
      store y[%i, %j] %2
      store z[%j, %i] %0
)"};

const Program kRuns = {"matrices plus rows and columns", R"(  input x T [d0, d1, d2] ordinal 0
  input b T [d0, d2] ordinal 1
  input c T [d1] ordinal 2
  output y T [d0, d1, d2] ordinal 0
  inputs (x, b, c)
  outputs (y)
  steps
    nest 0 add (%a<d0, %i<d1, %j<d2)
      %0 : T = load x[%a, %i, %j]
      %1 : T = load b[%a, %j]
      %2 : T = add %0 %1
      %3 : T = load c[%i]
      %4 : T = sub %2 %3
      store y[%a, %i, %j] %4
)"};

const Program kPadded = {"a transpose of a padded matrix", R"(  input x T [d0, d1] ordinal 0
  output y T [d1 + 3, d0 + 2] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 turn (%i<d1 + 3, %j<d0 + 2)
      %0 : T = load x[%j - 1, %i - 2] if 1 <= %j && %j <= d0 && 2 <= %i && %i < d1 + 2 else 7
      store y[%i, %j] %0
)"};

const Program kDepthwise = {"a convolution of each channel by itself", R"(  input x T [d0, d1, d2, d3] ordinal 0
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

const Program kStrided = {"a strided, dilated one with a tap weight for all channels, and the largest of a window", R"(
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

TEST_CASE("windows of neighbouring points") {
  for (const char* dtype : {"f16", "bf16", "f32"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {1, 5, 7, 16}, {2, 4, 9, 24}, {1, 1, 2, 8}, {1, 3, 4, 19}, {1, 0, 4, 8}, {0, 3, 3, 8}})
      check(kDepthwise, dtype, {shape});
  for (const char* dtype : {"f16", "f32", "f64", "i8", "i32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 9, 15, 16}, {1, 8, 12, 40}, {1, 5, 6, 6}, {3, 3, 3, 32}})
      for (const bool fixed : {false, true}) check(kStrided, dtype, {shape, fixed});
  for (const char* dtype : {"f16", "f32"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{2, 8, 16}, {1, 5, 8}, {3, 3, 5}})
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
          check(kStrided, dtype, {shape, fixed}, 0, "reorder %n %y %x %c; points %c 8" + along);
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
  // Of few points large blocks would leave most of the device idle; a run decides where it is one's or the other's.
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

TEST_CASE("columns") {
  for (const char* dtype : {"f16", "bf16", "f32", "f64", "i32", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{700, 72}, {2100, 24}, {65, 33}, {3, 8}, {0, 16}, {300, 0}})
      check(kColumnSum, dtype, {shape});
  for (const char* dtype : {"f16", "f32", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{300, 33}, {77, 259}, {290, 7}, {1, 9}})
      for (const bool fixed : {false, true}) check(kColumnDot, dtype, {shape, fixed});
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{600, 64}, {100, 129}, {4000, 8}})
    check(kColumnSum, "f16", {shape, true});
  for (const char* dtype : {"f16", "f32", "i8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 300, 40}, {3, 70, 19}, {1, 1000, 16}})
      check(kColumnArgMax, dtype, {shape});
}

TEST_CASE("a middle axis stays in registers, or goes through memory") {
  for (const char* dtype : {"f16", "f32", "f64"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 100, 24}, {1, 256, 40}, {2, 257, 8}, {1, 70, 35}, {1, 600, 5}})
      for (const bool fixed : {false, true}) check(kMiddle, dtype, {shape, fixed});
}

TEST_CASE("a middle axis of narrow numbers stays in registers as such") {
  for (const char* dtype : {"f16", "bf16"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 100, 24}, {1, 256, 40}, {2, 257, 8}, {1, 70, 35}})
      check(kMiddleWide, dtype, {shape});
  loop::Program program = parse(kMiddleWide, "bf16", {{2, 100, 24}});
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  const DeviceNest made = emit_nest(program, program.nests[0], gpu_target("sm_90a"));
  // Three blocks of a multiprocessor, whose threads keep 32 registers of x, and no exponentials.
  CHECK(made.choices[0].launches[0].code.text.find("__launch_bounds__(256, 3)") != std::string::npos);
  CHECK(made.choices[0].launches[0].code.text.find("row0[") == std::string::npos);
}

TEST_CASE("what loops of other dims read in order is loaded once") {
  for (const char* dtype : {"f16", "f32"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{2, 8, 16}, {3, 5, 7}, {1, 60, 56}, {1, 1, 3}, {0, 4, 4}})
      for (const bool fixed : {false, true}) check(kGroups, dtype, {shape, fixed});
  loop::Program program = parse(kGroups, "f16", {{2, 8, 16}});
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  const std::string text =
      emit_nest(program, program.nests[0], gpu_target("sm_90a")).choices[0].launches[0].code.text;
  size_t loads = 0;
  for (size_t at = 0; (at = text.find("= sd_load<8>(p0", at)) != std::string::npos; ++at) ++loads;
  CHECK(loads == 1);
}

TEST_CASE("rows") {
  for (const char* dtype : {"f16", "f32", "f64"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 1024}, {2, 1025}, {9, 72}, {2, 4100}, {0, 8}, {2, 0}})
      for (const bool fixed : {false, true}) check(kRows, dtype, {shape, fixed});
}

TEST_CASE("few long rows are several blocks' work") {
  for (const char* dtype : {"f16", "f32", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 5, 8000}, {2, 3, 13337}, {1, 40000, 1}, {200, 3, 5}})
      for (const bool fixed : {false, true}) {
        check(kLongRows, dtype, {shape, fixed});
        check(kSum, dtype, {shape, fixed});
      }
}

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

TEST_CASE("short rows, several a warp") {
  for (const char* dtype : {"f16", "f32", "f64"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{67, 96}, {33, 64}, {5, 61}, {129, 8}, {1, 300}})
      for (const int team : {4, 8, 16})
        for (const bool fixed : {false, true}) check(kRows, dtype, {shape, fixed}, team);
}

TEST_CASE("points") {
  for (const char* dtype : {"f16", "f64", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{300, 1023}, {263000, 1}, {40, 24}, {0, 3}})
      for (const bool fixed : {false, true}) check(kPoints, dtype, {shape, fixed});
}

TEST_CASE("points side by side, across the ends of rows") {
  for (const char* dtype : {"f16", "f32", "u8"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{3, 300, 333}, {2, 131, 1003}, {45000, 2, 3}, {1, 1, 270001}})
      for (const bool fixed : {false, true}) check(kRuns, dtype, {shape, fixed});
}

TEST_CASE("rows of odd widths go by vectors") {
  auto has = [](const Program& p, const std::vector<int64_t>& shape, const std::string& what) {
    loop::Program program = parse(p, "bf16", {shape, true});
    schedule::choose_gpu(program, gpu_target("sm_90a"));
    const DeviceNest made = emit_nest(program, program.nests[0], gpu_target("sm_90a"));
    return made.choices[0].launches[0].code.text.find(what) != std::string::npos;
  };
  CHECK(has(kRuns, {3, 300, 333}, "sd_store<8>("));
  CHECK(has(kTranspose, {1, 1025, 333}, "sd_load<8>("));
  CHECK(has(kColumnSum, {4097, 1023}, "sd_load_cover<8>("));
  // What a row's aligned vectors leave at its ends goes one by one.
  CHECK(has(kRows, {64, 1023}, "const int head = 7 & "));
  CHECK(has(kRows, {64, 1023}, "sd_store<8>("));
  CHECK_FALSE(has(kRows, {64, 1024}, "const int head"));
  for (const char* dtype : {"f16", "bf16"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {9, 1}, {9, 7}, {17, 15}, {9, 61}, {5, 1023}, {3, 4095}, {2, 9001}, {3, 0}})
      for (const bool fixed : {false, true}) check(kRows, dtype, {shape, fixed});
}

TEST_CASE("rows put together and read as a whole are there before they are read") {
  loop::Program program = parse(kHalves, "f32", {{20}, true});
  program.nests[0].schedule = loop::parse_schedule("team 64");
  const DeviceNest made = emit_nest(program, program.nests[0], gpu_target("sm_90a"));
  const std::string& text = made.choices[0].launches[0].code.text;
  const size_t second = text.find("+ 20] ="), read = text.find("= l0[", second);
  REQUIRE(second != std::string::npos);
  REQUIRE(read != std::string::npos);
  CHECK(text.substr(second, read - second).find("__syncthreads") != std::string::npos);
  for (const bool fixed : {false, true}) check(kHalves, "f32", {{20}, fixed});
}

TEST_CASE("rows whose length is not known have teams for all lengths") {
  auto widest = [](const Sizes& sizes) {
    loop::Program program = parse(kRows, "bf16", sizes);
    schedule::choose_gpu(program, gpu_target("sm_90a"));
    int threads = 0;
    for (const DeviceChoice& choice : emit_nest(program, program.nests[0], gpu_target("sm_90a")).choices)
      threads = std::max(threads, choice.launches[0].threads);
    return threads;
  };
  CHECK(widest({{64, 1024}}) == 512);
  CHECK(widest({{64, 1024}, true}) == 256);
}

TEST_CASE("tiles") {
  for (const char* dtype : {"f16", "f32", "f64", "u8"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{2, 136, 72},
                                                                               {1, 129, 65},
                                                                               {1, 263, 133},
                                                                               {1, 16, 200},
                                                                               {2, 3, 40},
                                                                               {3, 145, 19},
                                                                               {1, 20, 257},
                                                                               {0, 20, 20}})
      check(kTranspose, dtype, {shape});
  check(kTranspose, "bf16", {{1, 256, 64}, true});
  check(kTranspose, "bf16", {{2, 387, 131}, true});
  for (const char* dtype : {"f16", "i32"})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{131, 69}, {30, 61}})
      check(kPadded, dtype, {shape});
}

}  // namespace
}  // namespace stridec::codegen::cuda
