// Convolutions as GEMMs: all ranks, with padding, strides, dilation and groups.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "compiler/codegen/cpu/contraction.h"
#include "compiler/schedule/heuristics/contraction.h"
#include "tests/support/contraction_check.h"
#include "tests/support/contraction_harness.h"

using namespace stridec;
using loop::Program;
using sym::Expr;
using test::Case;
using test::check;
using test::conv;
using test::Conv;
using test::symbol;

TEST_CASE("convolutions of every rank, stride, dilation and padding") {
  check(conv(2, {.in = {11}, .kernel = {3}, .channels = 8, .filters = 9, .pad = 1}, {}));
  check(conv(2, {.in = {9, 10}, .kernel = {3, 3}, .channels = 6, .filters = 20, .pad = 1, .residual = true},
             {}));
  check(conv(1, {.in = {9, 7}, .kernel = {1, 1}, .channels = 16, .filters = 50}, {}));
  check(conv(1, {.in = {12, 13}, .kernel = {1, 1}, .channels = 16, .filters = 17, .stride = 2}, {}));
  check(conv(
      1,
      {.in = {15, 16}, .kernel = {3, 2}, .channels = 5, .filters = 8, .stride = 2, .dilation = 2, .pad = 2},
      {}));
  check(conv(2, {.in = {5, 6, 7}, .kernel = {2, 3, 1}, .channels = 4, .filters = 6, .pad = 1}, {}));
  check(conv(1, {.in = {14, 14}, .kernel = {7, 7}, .channels = 3, .filters = 32, .stride = 2, .pad = 3}, {}));
}

TEST_CASE("taps in the padding of all rows of a tile are left out, unless the padding counts") {
  const Conv frames{.in = {2, 7, 7}, .kernel = {3, 3, 3}, .channels = 16, .filters = 32, .pad = 1};
  Conv apart = frames, numbers = frames, steps = frames;
  apart.dilation = apart.pad =
      3;  // most tiles see one frame, some rows of it, and one tap of three along each
  steps.stride = 2, steps.in = {3, 9, 9};
  numbers.fill = 5;
  const CpuTarget& target = cpu_target("x86-64-v4");
  for (const auto& [c, left_out] :
       {std::pair{frames, true}, {apart, true}, {steps, true}, {numbers, false}}) {
    const Case made = conv(2, c, {});
    check(made);
    bool found = false;
    for (const auto& ranked : schedule::contraction_plans(made.program, made.program[made.nest], target)) {
      loop::Nest nest = made.program[made.nest];
      nest.schedule = kernels::to_schedule(ranked.plan);
      const std::string text = codegen::cpu::emit_contraction(made.program, nest, target).text;
      found = found || text.find("live_segments") != std::string::npos;
    }
    CHECK(found == left_out);
  }
}

TEST_CASE("convolutions of bytes, padded with their zero point") {
  for (const auto& [data, weights] : {std::pair{DType::kU8, DType::kI8}, {DType::kI8, DType::kI8}}) {
    for (Conv c :
         {Conv{.in = {9, 10}, .kernel = {3, 3}, .channels = 8, .filters = 20, .pad = 1, .residual = true},
          Conv{.in = {14, 14}, .kernel = {7, 7}, .channels = 3, .filters = 32, .stride = 2, .pad = 3},
          Conv{.in = {8, 9}, .kernel = {3, 3}, .channels = 12, .filters = 30, .groups = 3, .pad = 1},
          Conv{.in = {8, 9},
               .kernel = {3, 3},
               .channels = 6,
               .filters = 10,
               .pad = 1,
               .channels_last = false}}) {
      c.data = data, c.weights = weights, c.sum = DType::kI32, c.fill = 5;
      check(conv(2, c, {}));
    }
  }
}

TEST_CASE("rows at one distance from each other, tap by tap") {
  for (const DType data : {DType::kBF16, DType::kU8}) {
    const bool floats = data == DType::kBF16;
    check(conv(1,
               {.in = {45},
                .kernel = {3},
                .channels = 64,
                .filters = 20,
                .dilation = 2,
                .data = data,
                .weights = floats ? data : DType::kI8,
                .sum = floats ? DType::kF32 : DType::kI32},
               {}));
  }
}

TEST_CASE("convolutions of channels-first data, and grouped ones") {
  check(conv(2,
             {.in = {8, 9}, .kernel = {3, 3}, .channels = 6, .filters = 10, .pad = 1, .channels_last = false},
             {}));
  check(conv(1, {.in = {8, 9}, .kernel = {3, 3}, .channels = 12, .filters = 30, .groups = 3, .pad = 1}, {}));
}

TEST_CASE("a convolution of a symbolic batch") {
  Program program;
  const Expr batch = symbol(program, "batch", 1, 64);
  check(conv(batch, {.in = {7, 7}, .kernel = {3, 3}, .channels = 16, .filters = 24, .pad = 1}, program),
        {{{batch, 1}}, {{batch, 5}}});
}
