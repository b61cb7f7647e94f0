// Attention kernels with mma.sync and wgmma, emulated and compared with the interpreter.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "compiler/base/text.h"
#include "compiler/kernels/flash.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "tests/support/emulate.h"
#include "tests/support/flash_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/sample.h"

namespace stridec::codegen::cuda {
namespace {

using kernels::FlashPlan;
using loop::HostTensor;

struct Sizes {
  int64_t batch, rows, past;
};

HostTensor drawn(const loop::Program& program, loop::BufferId id, const Sizes& sizes, int seed) {
  const loop::Buffer& buffer = program[id];
  const std::map<std::string, int64_t> symbols = {
      {"b", sizes.batch}, {"s", sizes.rows}, {"past", sizes.past}};
  const auto shape = test::shape_of(buffer, [&](const std::string& symbol) { return symbols.at(symbol); });
  return test::drawn_tensor(buffer.dtype, shape, seed, [&](double unit) {
    if (buffer.name == "n")  // zero, more than there are keys, and values in between
      return std::floor((static_cast<double>(sizes.rows + sizes.past) + 60) * unit) - 30;
    // About every fourth value of c is 0, which selects given weights for the row.
    return !is_float(buffer.dtype) ? std::floor(3 * unit) : seed == 4 && unit < 0.25 ? 0 : 4 * unit - 2;
  });
}

// Checks every variant that the sizes allow, on a device with few multiprocessors.
void check(const test::FlashCase& c, const FlashPlan& plan, const Sizes& sizes, size_t expected = 1,
           bool clusters = false, int multiprocessors = 7) {
  INFO(c.dtype, " ", c.depth, "x", c.width, " ", c.bias, " ", loop::to_string(to_schedule(plan)), ": ",
       sizes.batch, " x ", sizes.rows, " x ", sizes.past + sizes.rows);
  GpuTarget target = gpu_target("sm_90a");
  target.multiprocessors = multiprocessors;
  target.clusters = clusters;
  loop::Program program = loop::parse_program(test::flash_text(c));
  loop::verify(program);
  program.nests[0].schedule = to_schedule(plan);
  if (!test::in_sample(cat(loop::to_string(program), sizes.batch, " ", sizes.rows, " ", sizes.past), 2))
    return;
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < program.inputs.size(); ++i)
    inputs.push_back(drawn(program, program.inputs[i], sizes, i));
  const HostTensor want = loop::interpret(program, inputs)[0];
  size_t choices = 1;
  for (size_t choice = 0; choice < choices; ++choice) {
    const auto got = test::emulate(program, inputs, target, choice, &choices);
    REQUIRE(got.has_value());
    INFO("choice ", choice, " of ", choices);
    double error = 0, largest = 1;
    for (int64_t i = 0; i < loop::element_count(want); ++i) {
      const double a = loop::get_number((*got)[0], i), b = loop::get_number(want, i);
      if (std::isnan(a) && std::isnan(b)) continue;
      error = std::max(error, std::isnan(a - b) ? HUGE_VAL : std::abs(a - b));
      largest = std::max(largest, std::isnan(b) ? 0 : std::abs(b));
    }
    CHECK(error <= (c.dtype == "f32" ? 2e-6 : c.dtype == "bf16" ? 1.6e-2 : 2e-3) * largest);
  }
  CHECK(choices == expected);
}

TEST_CASE("attention by tiles that go through all keys") {
  check({.depth = 64, .width = 64, .bias = "causal"}, {.rows = 64, .keys = 64}, {1, 70, 61}, 2);
  check({.dtype = "bf16", .depth = 40, .width = 72, .bias = "load", .group = 2, .fixed = true},
        {.rows = 64, .keys = 32}, {1, 9, 50}, 2);
  check({.depth = 33, .width = 17, .guard = true}, {.rows = 64, .keys = 32}, {1, 65, 3});
  check({.bias = "both", .hidden = true}, {.rows = 64, .keys = 64}, {1, 70, 61}, 2);
}

TEST_CASE("attention of few rows: all blocks of the device share all keys") {
  const FlashPlan small{.rows = 16, .keys = 16, .spread = 1, .warps = 2, .stages = 2},
      large{.rows = 16, .keys = 32, .spread = 2, .warps = 2, .stages = 3};
  check({}, small, {1, 1, 255}, 3);
  check({.bias = "causal", .single = true}, small, {2, 1, 300}, 3);
  check({.dtype = "bf16", .depth = 128, .width = 128, .bias = "load"}, small, {1, 4, 337}, 3);
  check({.depth = 72, .width = 40, .bias = "causal", .group = 4, .guard = true}, large, {1, 16, 500}, 3);
  check({.bias = "late", .fixed = true}, small, {1, 3, 259}, 5);
  check({.dtype = "bf16", .depth = 33, .width = 17, .fixed = true}, small, {1, 18, 290}, 2);
  check({.bias = "late", .guard = true}, large, {1, 3, 0}, 2);  // too few keys to share
  // Blocks have keys of one tile only: 5 steps and 4.
  check({.bias = "causal"}, small, {1, 1, 280}, 3, false, 20);
  // More blocks share a tile than are combined at once.
  check({.bias = "causal", .fixed = true}, {.rows = 16, .keys = 16, .spread = 2, .warps = 2}, {1, 2, 1150}, 3,
        false, 150);
  // Symbolic number of rows: heads that share keys are rows of one tile.
  check({.bias = "causal", .group = 4, .fixed = true}, {.rows = 64, .keys = 64}, {1, 3, 2100}, 4);
}

TEST_CASE("attention by warp groups that the engine feeds") {
  check({.depth = 64, .width = 64, .bias = "causal"}, {.wgmma = true, .rows = 128, .keys = 64}, {1, 136, 64},
        2);
  // More tiles than the last wave, which blocks process in another order.
  check({.depth = 16, .width = 16, .bias = "causal"}, {.wgmma = true, .rows = 128, .keys = 64}, {2, 136, 64},
        2, false, 3);
  // Two tiles per block, and one.
  check({.depth = 16, .width = 16, .bias = "causal"}, {.wgmma = true, .rows = 128, .keys = 64}, {1, 136, 64},
        2, false, 10);
  check({.dtype = "bf16", .depth = 40, .width = 72, .bias = "load", .group = 2, .fixed = true},
        {.wgmma = true, .rows = 192, .keys = 128}, {1, 72, 56}, 3);
}

TEST_CASE("attention of few rows: blocks of a cluster share the keys") {
  check({.bias = "causal"}, {.rows = 16, .keys = 16, .split = 2}, {1, 9, 300}, 3, true);
  check({.dtype = "bf16", .depth = 72, .width = 40, .bias = "load"}, {.rows = 16, .keys = 16, .split = 4},
        {1, 3, 600}, 3, true);
}

TEST_CASE("attention up to lengths that memory has") {
  const FlashPlan small{.rows = 16, .keys = 16, .spread = 1, .warps = 2, .stages = 2};
  for (const char* bias : {"length", "low length", "length and causal", "row length", "padded"}) {
    check({.bias = bias, .guard = true}, {.rows = 64, .keys = 64}, {2, 9, 91}, 2);
    check({.bias = bias, .group = 4, .hidden = true}, small, {3, 3, 257}, 3);
  }
  // All sequences are short, and there are more blocks than remaining work units.
  check({.bias = "length"}, small, {1, 1, 500}, 3, false, 40);
  check({.bias = "padded", .fixed = true}, small, {1, 2, 300}, 3);
  check({.bias = "length and causal"}, {.rows = 16, .keys = 16, .split = 2}, {1, 9, 300}, 3, true);
}

// 32-bit operands: f32 accumulators are as exact as with FMAs.
TEST_CASE("attention of f32 and tf32") {
  const FlashPlan spread{.rows = 16, .keys = 16, .spread = 1, .warps = 2, .stages = 2};
  for (const char* dtype : {"f32", "tf32"}) {
    check({.dtype = dtype, .depth = 32, .width = 32, .bias = "causal"}, {.rows = 64, .keys = 32}, {1, 70, 61},
          2);
    check({.dtype = dtype, .depth = 33, .width = 17, .guard = true}, {.rows = 64, .keys = 32}, {1, 65, 3});
    check({.dtype = dtype, .bias = "lowest"}, {.rows = 64, .keys = 32}, {1, 1, 0}, 2);
    check({.dtype = dtype, .bias = "load"}, {.rows = 64, .keys = 32}, {0, 3, 5}, 2);
    check({.dtype = dtype, .depth = 16, .width = 16, .bias = "causal"}, spread, {1, 1, 255}, 3);
  }
  check({.dtype = "f32", .depth = 40, .width = 72, .bias = "load", .group = 2, .fixed = true},
        {.rows = 128, .keys = 32}, {1, 9, 50}, 2);
  check({.dtype = "tf32", .bias = "late"}, {.rows = 64, .keys = 32}, {1, 33, 100}, 3);
  check({.dtype = "tf32", .depth = 20, .width = 12, .bias = "both", .hidden = true}, {.rows = 64, .keys = 16},
        {1, 19, 61}, 2);
  check({.dtype = "f32", .depth = 16, .width = 32, .bias = "length and causal", .guard = true}, spread,
        {1, 4, 337}, 3);
  check({.dtype = "f32", .depth = 33, .width = 17, .fixed = true}, spread, {1, 3, 290}, 2);
  // Blocks of a cluster share keys of more rows than a tile has.
  check({.dtype = "f32", .depth = 72, .width = 40, .bias = "load"}, {.rows = 16, .keys = 16, .split = 2},
        {1, 19, 300}, 3, true);
}

TEST_CASE("attention by warp groups up to lengths that memory has") {
  for (const char* bias : {"length", "low length", "length and causal", "padded"})
    check({.bias = bias, .guard = true}, {.wgmma = true, .rows = 128, .keys = 64}, {2, 136, 64}, 2);
}

}  // namespace
}  // namespace stridec::codegen::cuda
