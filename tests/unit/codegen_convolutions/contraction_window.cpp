#include "compiler/codegen/cpu/contraction_window.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/build.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "compiler/schedule/heuristics/window.h"
#include "compiler/schedule/layout/pack_weights.h"
#include "tests/support/contraction_check.h"
#include "tests/support/contraction_harness.h"

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
  int64_t count, inputs, outputs;  // channels per group
};

struct Layers {
  View given, x, y, result;
};

// Channels-last tensors `x` and `y` between an input and an output in the model's layout.
Layers layers(Program& program, const std::vector<Expr>& in, const std::vector<Expr>& out, DType dtype,
              DType results) {
  const Layers l{buffer(program, "given", in, Storage::kInput, dtype),
                 buffer(program, "x", in, Storage::kArena, dtype, strides_of(in, true)),
                 buffer(program, "y", out, Storage::kArena, results, strides_of(out, true)),
                 buffer(program, "result", out, Storage::kOutput, results)};
  program.inputs = {l.given.buffer};
  program.outputs = {l.result.buffer};
  program[l.given.buffer].ordinal = program[l.result.buffer].ordinal = 0;
  return l;
}

void copy(Program& program, const View& from, const View& to) {
  NestBuilder nb(program, "copy");
  const auto i = nb.dims(from.shape);
  nb.store(to, i, nb.load(from, i));
  nb.finish();
}

Expr extent_of_output(Expr in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad) {
  return sym::floordiv(in + 2 * pad - dilation * (kernel - 1) - 1, stride) + 1;
}

// The element that a tap reads, with padding.
loop::Access element_of(const View& x, Expr n, Expr channel, const std::vector<Expr>& at, int64_t pad) {
  const Expr height = x.shape[2], width = x.shape[3], row = at[0], column = at[1];
  loop::Access from{.buffer = x.buffer, .index = {n, channel, row, column}};
  if (pad)
    from.mask = sym::logical_and(
        std::vector{sym::ge(row, 0), sym::lt(row, height), sym::ge(column, 0), sym::lt(column, width)});
  return from;
}

struct Window {
  std::array<int64_t, 2> kernel;
  int64_t stride, dilation, pad;
};

struct Types {
  DType data, weights, sum, results;
};

// A grouped convolution, channels-last between an input and an output in the model's layout; `fill` is the
// padding. `result` computes the stored value from a sum and its channel.
Program convolution(Expr batch, Expr height, Expr width, Groups groups, Window window, Types types,
                    int64_t fill, Program program,
                    const std::function<Value(NestBuilder&, const Value& sum, Expr channel)>& result) {
  const auto [kernel, stride, dilation, pad] = window;
  const int64_t channels = groups.count * groups.outputs;
  const std::vector<Expr> in_shape = {batch, groups.count * groups.inputs, height, width},
                          out_shape = {batch, channels,
                                       extent_of_output(height, kernel[0], stride, dilation, pad),
                                       extent_of_output(width, kernel[1], stride, dilation, pad)};
  const Layers all = layers(program, in_shape, out_shape, types.data, types.results);
  const View w = weight(program, "w", {channels, groups.inputs, kernel[0], kernel[1]}, types.weights);
  copy(program, all.given, all.x);
  NestBuilder nb(program, "convolution");
  const Expr n = nb.dim(batch), g = nb.dim(groups.count),
             c = groups.outputs > 1 ? nb.dim(groups.outputs) : Expr(0);
  const auto at = nb.dims({out_shape[2], out_shape[3]});
  const Expr channel = g * groups.outputs + c;
  std::vector<Expr> reduced = {kernel[0], kernel[1]};
  if (groups.inputs > 1) reduced.insert(reduced.begin(), groups.inputs);
  const Value sum = nb.reduce(loop::Combine::kSum, reduced, [&](const std::vector<Expr>& k) {
    const Expr input = groups.inputs > 1 ? k[0] : Expr(0), r = k[k.size() - 2], s = k[k.size() - 1];
    const Expr row = at[0] * window.stride + r * window.dilation - window.pad,
               column = at[1] * window.stride + s * window.dilation - window.pad;
    const Value a = nb.load(element_of(all.x, n, g * groups.inputs + input, {row, column}, window.pad),
                            loop::int_scalar(types.data, fill));
    return nb.cast(a, types.sum) * nb.cast(nb.load(w, {channel, input, r, s}), types.sum);
  });
  nb.store(all.y, {n, channel, at[0], at[1]}, result(nb, sum, channel));
  nb.finish();
  copy(program, all.y, all.result);
  return program;
}

// With a bias, clipped; multiplies and accumulates in f32.
Program grouped(Expr batch, Expr height, Expr width, Groups groups, int64_t kernel, int64_t stride,
                int64_t dilation, int64_t pad, Program program, DType dtype = DType::kF32) {
  const View bias = weight(program, "bias", {groups.count * groups.outputs});
  return convolution(batch, height, width, groups, {{kernel, kernel}, stride, dilation, pad},
                     {dtype, dtype, DType::kF32, DType::kF32}, 0, std::move(program),
                     [&](NestBuilder& nb, const Value& sum, Expr channel) {
                       const Value biased = max(sum + nb.load(bias, {channel}), nb.constant(DType::kF32, 0));
                       return min(biased, nb.constant(DType::kF32, 6));
                     });
}

// 8-bit, padded with a zero point, requantised per channel.
Program quantised(Expr batch, Expr height, Expr width, Groups groups, std::array<int64_t, 2> kernel,
                  int64_t stride, int64_t dilation, int64_t pad, Program program,
                  DType weights = DType::kI8) {
  const View scale = weight(program, "scale", {groups.count * groups.outputs});
  return convolution(batch, height, width, groups, {kernel, stride, dilation, pad},
                     {DType::kU8, weights, DType::kI32, DType::kU8}, 77, std::move(program),
                     [&](NestBuilder& nb, const Value& sum, Expr channel) {
                       const Value number = unary(loop::ScalarOp::kRound,
                                                  nb.cast(sum, DType::kF32) * nb.load(scale, {channel}));
                       return nb.cast(number, DType::kU8, true);
                     });
}

Program depthwise(Expr batch, Expr height, Expr width, int64_t channels, int64_t kernel, int64_t stride,
                  int64_t dilation, int64_t pad, Program program, DType dtype = DType::kF32) {
  return grouped(batch, height, width, {channels, 1, 1}, kernel, stride, dilation, pad, std::move(program),
                 dtype);
}

// `masked`: the kernel exists only on targets with lane masks.
void check_program(const Program& program, const std::vector<int64_t>& shape, const std::string& kernel,
                   bool masked = false) {
  const DType dtype = program[program.inputs[0]].dtype;
  loop::HostTensor input = loop::make_tensor(dtype, shape);
  for (int64_t i = 0; i < loop::element_count(input); ++i)
    loop::set_number(
        input, i,
        is_float(dtype) ? static_cast<double>(i * 29 % 23) / 8 - 1 : static_cast<double>(i * 151 % 256));
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
    std::vector<loop::HostTensor> actual;
    try {
      actual = codegen::cpu::run_compiled(scheduled, {input}, {.target = target});
    } catch (const Error& e) {
      FAIL(render(e.diagnostic));
    }
    REQUIRE(expected[0].shape == actual[0].shape);
    double worst = 0;
    for (int64_t i = 0; i < loop::element_count(expected[0]); ++i) {
      worst = std::max(worst, std::abs(loop::get_number(expected[0], i) - loop::get_number(actual[0], i)));
    }
    CHECK(worst <= (is_float(dtype) ? 1e-5 : 0));
  };
  const CpuTarget& native = cpu_target("native");
  std::vector<const CpuTarget*> targets = {&native, &cpu_target("x86-64-v3"), &cpu_target("x86-64-v2")};
  if (!is_float(dtype) && native.avx512) {
    targets.push_back(&cpu_target("x86-64-v4"));
    if (native.vnni) targets.push_back(&cpu_target("cascadelake"));
  }
  for (const CpuTarget* target : targets)
    check_choice(*target, [&](const Program& made, const loop::Nest& nest) {
      return schedule::choose_contraction(made, nest, *target);
    });
  constexpr int kDraws = 2;
  for (int draw = 0; draw < kDraws && kernel.starts_with("window."); ++draw)
    check_choice(native, [&](const Program& made, const loop::Nest& nest) -> std::optional<loop::Schedule> {
      const auto contraction = kernels::match_contraction(nest);
      if (!contraction) return std::nullopt;
      const auto space = schedule::window_space(made, nest, *contraction, native);
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

TEST_CASE("depthwise convolutions of floats of two bytes, summed in four") {
  for (const auto& [dtype, kernel] :
       {std::pair(DType::kBF16, "window.bf16"), std::pair(DType::kF16, "window.f16")}) {
    check_program(depthwise(2, 9, 7, 20, 3, 1, 1, 1, {}, dtype), {2, 20, 9, 7}, kernel);
    check_program(depthwise(1, 14, 14, 32, 3, 2, 1, 1, {}, dtype), {1, 32, 14, 14}, kernel);
    check_program(depthwise(1, 13, 30, 17, 5, 1, 2, 2, {}, dtype), {1, 17, 13, 30}, kernel);
    check_program(grouped(1, 7, 8, {11, 3, 3}, 3, 1, 2, 2, {}, dtype), {1, 33, 7, 8}, kernel, true);
  }
}

TEST_CASE("a depthwise convolution of symbolic height and width") {
  Program program;
  const Expr h = symbol(program, "h", 1, 64), w = symbol(program, "w", 1, 64);
  for (size_t d = 0; d < 2; ++d)
    program.symbols[d].input = 0, program.symbols[d].dim = static_cast<int>(2 + d);
  const Program made = depthwise(1, h, w, 24, 3, 1, 1, 1, program);
  // GEMMs of one row each: slow but correct.
  check({made, loop::NestId(1)}, {{{h, 3}, {w, 8}}, {{h, 1}, {w, 1}}});
  for (auto [height, width] : {std::array<int64_t, 2>{1, 1}, {3, 8}, {7, 19}})
    check_program(made, {1, 24, height, width}, "window.");
}

TEST_CASE("depthwise convolutions of bytes are exact") {
  struct Shape {
    int64_t batch, height, width, channels;
    std::array<int64_t, 2> kernel;
    int64_t stride, dilation, pad;
  };
  for (const Shape& s : {Shape{2, 9, 7, 20, {3, 3}, 1, 1, 1},    // groups of three taps
                         Shape{1, 14, 14, 32, {3, 3}, 2, 1, 1},  //
                         Shape{1, 13, 30, 17, {5, 5}, 1, 1, 2},  // of four and of one
                         Shape{1, 11, 12, 16, {3, 3}, 1, 2, 2},  //
                         Shape{1, 10, 10, 8, {4, 2}, 1, 1, 0},   // of four
                         Shape{1, 9, 9, 24, {2, 3}, 2, 2, 1},    // of two
                         Shape{1, 1, 40, 19, {1, 9}, 1, 1, 0},   // taps along the outputs alone
                         Shape{1, 40, 1, 33, {7, 1}, 2, 1, 0}})  //
  {
    CAPTURE(s.kernel[0]);
    CAPTURE(s.stride);
    check_program(
        quantised(s.batch, s.height, s.width, {s.channels, 1, 1}, s.kernel, s.stride, s.dilation, s.pad, {}),
        {s.batch, s.channels, s.height, s.width}, "window.u8");
  }
  Program program;
  const Expr h = symbol(program, "h", 1, 64), w = symbol(program, "w", 1, 64);
  for (size_t d = 0; d < 2; ++d)
    program.symbols[d].input = 0, program.symbols[d].dim = static_cast<int>(2 + d);
  const Program made = quantised(1, h, w, {24, 1, 1}, {3, 3}, 1, 1, 1, program);
  for (auto [height, width] : {std::array<int64_t, 2>{1, 1}, {3, 8}, {7, 19}})
    check_program(made, {1, 24, height, width}, "window.u8");
}

TEST_CASE("convolutions of groups of bytes are exact") {
  struct Shape {
    int64_t batch, height, width;
    Groups groups;
    std::array<int64_t, 2> kernel;
    int64_t stride, dilation, pad;
  };
  for (const DType weights : {DType::kI8, DType::kI16}) {
    for (const Shape& s : {Shape{2, 6, 11, {8, 4, 4}, {3, 3}, 1, 1, 1},   // whole vectors
                           Shape{1, 9, 7, {6, 8, 8}, {3, 3}, 2, 1, 1},    //
                           Shape{1, 9, 7, {3, 16, 16}, {3, 3}, 1, 1, 1},  // a vector to a group
                           Shape{1, 5, 6, {2, 32, 16}, {3, 2}, 1, 1, 1},  // of as many inputs as a vector has
                           Shape{1, 7, 8, {11, 12, 3}, {3, 3}, 1, 2, 2},  // groups that do not fill a vector
                           Shape{1, 5, 9, {7, 2, 2}, {5, 5}, 1, 1, 2},    // taps beside each other
                           Shape{1, 7, 8, {11, 3, 5}, {3, 3}, 1, 2, 2},   //
                           Shape{1, 6, 5, {20, 1, 2}, {3, 3}, 1, 1, 1},   // of one input channel
                           Shape{1, 6, 5, {9, 1, 3}, {1, 3}, 2, 1, 1},    //
                           Shape{1, 6, 5, {9, 4, 1}, {3, 3}, 1, 1, 1},    // of one output channel
                           Shape{1, 4, 17, {5, 8, 4}, {1, 1}, 1, 1, 0}}) {  // of one tap
      CAPTURE(s.groups.inputs);
      CAPTURE(s.groups.outputs);
      CAPTURE(name(weights));
      check_program(
          quantised(s.batch, s.height, s.width, s.groups, s.kernel, s.stride, s.dilation, s.pad, {}, weights),
          {s.batch, s.groups.count * s.groups.inputs, s.height, s.width}, "window.u8", true);
    }
  }
}

TEST_CASE("groups of few channels of bf16 are products of pairs, where there are such") {
  const bool pairs = cpu_target("native").avx512_bf16;
  for (const Groups groups : {Groups{8, 4, 4}, {6, 8, 8}, {3, 16, 16}, {7, 2, 6}, {11, 6, 3}})
    for (const int64_t stride : {1, 2}) {
      CAPTURE(groups.inputs);
      const Program program = grouped(1, 7, 9, groups, 3, stride, 1, 1, {}, DType::kBF16);
      check_program(program, {1, groups.count * groups.inputs, 7, 9}, "window.bf16", true);
      const CpuTarget& native = cpu_target("native");
      const loop::Nest& nest = program.nests[1];
      const auto plan = schedule::choose_window(program, nest, *kernels::match_contraction(nest), native);
      if (pairs) {
        REQUIRE(plan.has_value());
        CHECK((plan->kernel->name == "window.bf16bf16") ==
              (native.bf16_dots_per_cycle * 2 > native.fma_per_cycle));
      }
    }
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

TEST_CASE("convolutions to few channels, by packed vectors of k") {
  for (const Groups& groups : {Groups{1, 32, 1}, {1, 32, 3}, {1, 48, 5}})
    check_program(grouped(2, 19, 18, groups, 3, 1, 1, 1, {}), {2, groups.count * groups.inputs, 19, 18},
                  "gemm.f32.deep.", true);
}
