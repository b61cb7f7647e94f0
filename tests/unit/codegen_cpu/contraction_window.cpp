#include "compiler/codegen/cpu/contraction_window.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/build.h"
#include "compiler/schedule/choose_contraction.h"
#include "compiler/schedule/choose_window.h"
#include "compiler/schedule/pack_weights.h"
#include "tests/unit/codegen_cpu/contraction_check.h"
#include "tests/unit/codegen_cpu/contraction_harness.h"

using namespace stridec;
using loop::NestBuilder;
using loop::Program;
using loop::Storage;
using loop::Value;
using loop::View;
using sym::Expr;
using test::buffer;
using test::check;
using test::drawn;
using test::strides_of;
using test::symbol;
using test::weight;

namespace {

struct Groups {
  int64_t count, inputs, outputs;  // channels of one
};

// Channels-last, bias, clipped.
Program grouped(Expr batch, Expr height, Expr width, Groups groups, int64_t kernel, int64_t stride,
                int64_t dilation, int64_t pad, Program program) {
  auto out = [&](Expr in) { return sym::floordiv(in + 2 * pad - dilation * (kernel - 1) - 1, stride) + 1; };
  const std::vector<Expr> in_shape = {batch, groups.count * groups.inputs, height, width},
                          out_shape = {batch, groups.count * groups.outputs, out(height), out(width)};
  const View given = buffer(program, "given", in_shape, Storage::kInput);
  const View x = buffer(program, "x", in_shape, Storage::kArena, DType::kF32, strides_of(in_shape, true));
  const View y = buffer(program, "y", out_shape, Storage::kArena, DType::kF32, strides_of(out_shape, true));
  const View result = buffer(program, "result", out_shape, Storage::kOutput);
  const int64_t channels = groups.count * groups.outputs;
  const View w = weight(program, "w", {channels, groups.inputs, kernel, kernel}),
             bias = weight(program, "bias", {channels});
  program.inputs = {given.buffer};
  program.outputs = {result.buffer};
  program[given.buffer].ordinal = program[result.buffer].ordinal = 0;
  auto copy = [&](const View& from, const View& to) {
    NestBuilder nb(program, "copy");
    const auto i = nb.dims(from.shape);
    nb.store(to, i, nb.load(from, i));
    nb.finish();
  };
  copy(given, x);
  NestBuilder nb(program, "grouped");
  const Expr n = nb.dim(batch), g = nb.dim(groups.count),
             c = groups.outputs > 1 ? nb.dim(groups.outputs) : Expr(0);
  const auto at = nb.dims({out_shape[2], out_shape[3]});
  const Expr channel = g * groups.outputs + c;
  std::vector<Expr> reduced = {kernel, kernel};
  if (groups.inputs > 1) reduced.insert(reduced.begin(), groups.inputs);
  Value sum = nb.reduce(loop::Combine::kSum, reduced, [&](const std::vector<Expr>& k) {
    const Expr input = groups.inputs > 1 ? k[0] : Expr(0), r = k[k.size() - 2], s = k[k.size() - 1];
    const Expr row = at[0] * stride + r * dilation - pad, column = at[1] * stride + s * dilation - pad;
    loop::Access from{.buffer = x.buffer, .index = {n, g * groups.inputs + input, row, column}};
    if (pad) {
      from.mask = sym::logical_and(
          std::vector{sym::ge(row, 0), sym::lt(row, height), sym::ge(column, 0), sym::lt(column, width)});
    }
    return nb.load(from, loop::float_scalar(DType::kF32, 0)) * nb.load(w, {channel, input, r, s});
  });
  sum = max(sum + nb.load(bias, {channel}), nb.constant(DType::kF32, 0));
  nb.store(y, {n, channel, at[0], at[1]}, min(sum, nb.constant(DType::kF32, 6)));
  nb.finish();
  copy(y, result);
  return program;
}

Program depthwise(Expr batch, Expr height, Expr width, int64_t channels, int64_t kernel, int64_t stride,
                  int64_t dilation, int64_t pad, Program program) {
  return grouped(batch, height, width, {channels, 1, 1}, kernel, stride, dilation, pad, std::move(program));
}

// `masked`: the kernel is for targets alone that mask lanes.
void check_program(const Program& program, const std::vector<int64_t>& shape, const std::string& kernel,
                   bool masked = false) {
  loop::HostTensor input = loop::make_tensor(DType::kF32, shape);
  for (int64_t i = 0; i < loop::element_count(input); ++i)
    loop::set_number(input, i, static_cast<double>(i * 29 % 23) / 8 - 1);
  const auto expected = loop::interpret(program, {input});
  const auto check_choice = [&](const CpuTarget& target, const auto& choose) {
    CAPTURE(target.name);
    Program scheduled = program;
    bool used = false;
    for (loop::Nest& nest : scheduled.nests) {
      if (const auto chosen = choose(scheduled, nest)) nest.schedule = *chosen;
      used = used || nest.schedule.kernel.starts_with(kernel);
    }
    if (target.avx512 || !masked) CHECK(used);
    schedule::pack_weights(scheduled);
    codegen::cpu::RunCompiledOptions options{.target = target};
    options.build.use_cache = false;
    std::vector<loop::HostTensor> actual;
    try {
      actual = codegen::cpu::run_compiled(scheduled, {input}, options);
    } catch (const Error& e) {
      FAIL(render(e.diagnostic));
    }
    REQUIRE(expected[0].shape == actual[0].shape);
    double worst = 0;
    for (int64_t i = 0; i < loop::element_count(expected[0]); ++i) {
      worst = std::max(worst, std::abs(loop::get_number(expected[0], i) - loop::get_number(actual[0], i)));
    }
    CHECK(worst < 1e-5);
  };
  const CpuTarget& native = cpu_target("native");
  for (const CpuTarget* target : {&native, &cpu_target("x86-64-v3"), &cpu_target("x86-64-v2")})
    check_choice(*target, [&](const Program& made, const loop::Nest& nest) {
      return schedule::choose_contraction(made, nest, *target);
    });
  constexpr int kDraws = 2;
  for (int draw = 0; draw < kDraws && kernel == "window."; ++draw)
    check_choice(native, [&](const Program& made, const loop::Nest& nest) -> std::optional<loop::Schedule> {
      const auto space = schedule::window_space(made, nest, native);
      if (space.empty()) return std::nullopt;
      return kernels::to_schedule(space[drawn(space.size())]);
    });
}

}  // namespace

TEST_CASE("depthwise convolutions of every stride, dilation, padding and width") {
  check_program(depthwise(2, 9, 7, 20, 3, 1, 1, 1, {}), {2, 20, 9, 7}, "window.");
  check_program(depthwise(1, 14, 14, 32, 3, 2, 1, 1, {}), {1, 32, 14, 14}, "window.");
  check_program(depthwise(1, 13, 30, 17, 5, 1, 1, 2, {}), {1, 17, 13, 30}, "window.");
  check_program(depthwise(1, 11, 12, 16, 3, 1, 2, 2, {}), {1, 16, 11, 12}, "window.");
  check_program(depthwise(1, 10, 10, 8, 3, 1, 1, 0, {}), {1, 8, 10, 10}, "window.");
  check_program(depthwise(1, 5, 5, 48, 7, 1, 1, 3, {}), {1, 48, 5, 5}, "window.");
}

TEST_CASE("a depthwise convolution of symbolic height and width") {
  Program program;
  const Expr h = symbol(program, "h", 1, 64), w = symbol(program, "w", 1, 64);
  for (size_t d = 0; d < 2; ++d)
    program.symbols[d].input = 0, program.symbols[d].dim = static_cast<int>(2 + d);
  const Program made = depthwise(1, h, w, 24, 3, 1, 1, 1, program);
  // Products of one row each: slow, and right.
  check({made, loop::NestId(1)}, {{{h, 3}, {w, 8}}, {{h, 1}, {w, 1}}});
  for (auto [height, width] : {std::array<int64_t, 2>{1, 1}, {3, 8}, {7, 19}})
    check_program(made, {1, 24, height, width}, "window.");
}

TEST_CASE("convolutions of groups of few channels") {
  struct Shape {
    int64_t batch, height, width;
    Groups groups;
    int64_t kernel, stride, dilation, pad;
  };
  for (const Shape& s : {Shape{2, 6, 11, {8, 4, 4}, 3, 1, 1, 1},   // whole vectors
                         Shape{1, 9, 7, {6, 8, 8}, 3, 2, 1, 1},    //
                         Shape{1, 5, 9, {7, 2, 2}, 5, 1, 1, 2},    // a vector that is not full
                         Shape{1, 7, 8, {11, 3, 3}, 3, 1, 2, 2},   // groups that do not fill a vector
                         Shape{1, 8, 8, {3, 6, 6}, 3, 1, 1, 0},    //
                         Shape{1, 6, 5, {10, 1, 3}, 3, 1, 1, 1},   // of one input channel
                         Shape{1, 6, 5, {9, 5, 1}, 3, 1, 1, 1},    // of one output channel
                         Shape{1, 4, 17, {5, 8, 4}, 1, 1, 1, 0}})  // of one tap
  {
    CAPTURE(s.groups.inputs);
    CAPTURE(s.groups.outputs);
    check_program(grouped(s.batch, s.height, s.width, s.groups, s.kernel, s.stride, s.dilation, s.pad, {}),
                  {s.batch, s.groups.count * s.groups.inputs, s.height, s.width}, "window.", true);
  }
}

TEST_CASE("convolutions of groups of many channels, and of groups at symbolic sizes") {
  check_program(grouped(1, 5, 6, {3, 24, 40}, 3, 1, 1, 1, {}), {1, 72, 5, 6}, "gemm.");
  Program program;
  const Expr h = symbol(program, "h", 1, 64), w = symbol(program, "w", 1, 64);
  for (size_t d = 0; d < 2; ++d)
    program.symbols[d].input = 0, program.symbols[d].dim = static_cast<int>(2 + d);
  const Program made = grouped(1, h, w, {5, 4, 4}, 3, 1, 1, 1, program);
  for (auto [height, width] : {std::array<int64_t, 2>{1, 1}, {3, 8}, {7, 19}})
    check_program(made, {1, 20, height, width}, "window.", true);
}
