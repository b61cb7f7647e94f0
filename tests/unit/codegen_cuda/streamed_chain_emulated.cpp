// Attention's backward pass as chains that stream over columns, emulated and compared with the interpreter.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "compiler/kernels/flash_backward.h"
#include "compiler/kernels/streamed_chain.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/attention_backward.h"
#include "compiler/schedule/fusion/gpu_attention.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "compiler/schedule/heuristics/streamed_chain.h"
#include "tests/support/attention_backward_case.h"
#include "tests/support/emulate.h"
#include "tests/support/random_tensor.h"

namespace stridec::codegen::cuda {
namespace {

using loop::HostTensor;
using test::AttentionBackwardCase;

int streamed(const loop::Program& program) {
  return static_cast<int>(std::ranges::count_if(program.steps, [&](const loop::Step& step) {
    return program[std::get<loop::Launch>(step.node).nest].schedule.kernel == kernels::kStreamedChain;
  }));
}

void check(const AttentionBackwardCase& c, const char* gpu = "sm_80") {
  CAPTURE(gpu);
  CAPTURE(c.depth);
  CAPTURE(c.rows);
  CAPTURE(c.keys);
  const GpuTarget target = gpu_target(gpu);
  const loop::Program before = loop::parse_program(test::attention_backward_text(c));
  loop::Program after = before;
  std::vector<schedule::Decision> decisions;
  schedule::fuse_attention_backward(after, target, &decisions);
  loop::eliminate_dead_code(after);
  CAPTURE(decisions.empty() ? "attention was not found" : decisions[0].reason);
  schedule::chain_gpu(after, target);
  loop::verify(after);
  schedule::choose_gpu(after, target, {});
  REQUIRE(streamed(after) == 2);
  std::vector<HostTensor> inputs;
  for (const loop::BufferId id : after.inputs) {
    const loop::Buffer& buffer = after[id];
    inputs.push_back(test::drawn_tensor(buffer.dtype, test::shape_of(buffer), static_cast<int>(inputs.size()),
                                        [](double unit) { return 2 * unit - 1; }));
  }
  const std::vector<HostTensor> want = loop::interpret(before, inputs);
  const auto run = [&](const loop::Program& program) {
    size_t choices = 1;
    for (size_t choice = 0; choice < choices; ++choice) {
      CAPTURE(choice);
      const auto got = test::emulate(program, inputs, target, choice, &choices);
      REQUIRE(got.has_value());
      for (size_t result = 0; result < want.size(); ++result) {
        double error = 0, largest = 0;
        for (int64_t i = 0; i < loop::element_count(want[result]); ++i) {
          const double a = loop::get_number((*got)[result], i), b = loop::get_number(want[result], i);
          error = std::max(error, std::isnan(a) ? HUGE_VAL : std::abs(a - b));
          largest = std::max(largest, std::abs(b));
        }
        CAPTURE(result);
        CHECK(largest > 0.01);
        const std::string type = c.dtype;
        CHECK(error <= (type == "bf16" ? 1.6e-2 : type == "f32" ? 2e-5 : 2e-3) * largest);
      }
    }
  };
  run(after);
}

TEST_CASE("attention's backward pass by rows and by keys") {
  check({});
  check({.dtype = "f16", .rows = "130", .keys = "75", .depth = "128"});
  check({.rows = "20", .keys = "33", .depth = "40"});
  check({.dtype = "f16", .rows = "17", .keys = "100", .depth = "17"});
}

TEST_CASE("attention's backward pass by rows and by keys, with masks") {
  check({.causal = true, .rows = "150", .keys = "150"});
  check({.causal = true, .safe = true, .dtype = "f16", .rows = "140", .keys = "140", .depth = "80"});
  check({.additive = true, .rows = "70", .keys = "90"});
  check({.additive = true, .dtype = "f16", .rows = "70", .keys = "90", .depth = "32"}, "sm_90a");
  check({.hidden = true, .dtype = "f16", .rows = "70", .keys = "90", .depth = "32"});
  check({.hidden = true, .gathered = true, .dtype = "f16", .rows = "70", .keys = "90", .depth = "32"});
  check({.hidden = true, .single = true, .dtype = "f16", .rows = "70", .keys = "90", .depth = "32"});
  check({.capped = true, .dtype = "f16", .rows = "70", .keys = "90", .depth = "32"});
  // Queries after a cache of keys.
  check({.causal = true, .rows = "60", .keys = "200", .depth = "32", .ahead = "140"});
}

TEST_CASE("attention's backward pass by rows and by keys, of 32-bit floats") {
  check({.dtype = "f32"});
  check({.causal = true, .dtype = "f32", .rows = "75", .keys = "75", .depth = "33"});
  check({.additive = true, .dtype = "f32", .rows = "70", .keys = "90"}, "sm_90a");
  check({.hidden = true, .dtype = "tf32", .rows = "70", .keys = "90", .depth = "32"});
}

TEST_CASE("each tile of a streamed chain") {
  const GpuTarget target = gpu_target("sm_80");
  loop::Program program =
      loop::parse_program(test::attention_backward_text({.causal = true, .dtype = "f16", .depth = "32"}));
  schedule::fuse_attention_backward(program, target);
  loop::eliminate_dead_code(program);
  schedule::chain_gpu(program, target);
  std::vector<HostTensor> inputs;
  for (const loop::BufferId id : program.inputs)
    inputs.push_back(test::drawn_tensor(program[id].dtype, test::shape_of(program[id]),
                                        static_cast<int>(inputs.size()),
                                        [](double unit) { return 2 * unit - 1; }));
  const auto want = loop::interpret(program, inputs);
  size_t plans = 0;
  for (size_t i = 0; i == 0 || i < plans; ++i) {
    loop::Program tiled = program;
    for (loop::Step& step : tiled.steps) {
      loop::Nest& nest = tiled[std::get<loop::Launch>(step.node).nest];
      const auto all = schedule::streamed_chain_plans(tiled, nest, target);
      if (all.empty()) continue;
      plans = all.size();
      nest.schedule = kernels::to_schedule(all[std::min(i, all.size() - 1)]);
    }
    REQUIRE(plans > 2);
    schedule::choose_gpu(tiled, target, {});
    size_t choices = 1;
    const auto got = test::emulate(tiled, inputs, target, 0, &choices);
    REQUIRE(got.has_value());
    for (size_t result = 1; result < want.size(); ++result)
      for (int64_t at = 0; at < loop::element_count(want[result]); ++at)
        REQUIRE(std::abs(loop::get_number((*got)[result], at) - loop::get_number(want[result], at)) < 2e-3);
  }
}

}  // namespace
}  // namespace stridec::codegen::cuda
