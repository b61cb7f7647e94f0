// Attention's backward pass becomes one nest, and the forward pass one chain.
#include "compiler/schedule/fusion/attention_backward.h"

#include <doctest/doctest.h>

#include <cmath>

#include "compiler/kernels/flash.h"
#include "compiler/kernels/flash_backward.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/gpu_attention.h"
#include "compiler/schedule/heuristics/candidates.h"
#include "tests/support/attention_backward_case.h"
#include "tests/support/random_tensor.h"

namespace stridec::schedule {
namespace {

using loop::HostTensor;

int kernels_named(const loop::Program& program, bool backward) {
  int count = 0;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const loop::Nest& nest = program[std::get<loop::Launch>(step.node).nest];
    if (backward ? kernels::match_flash_backward(program, nest).has_value()
                 : kernels::match_flash(program, nest).has_value())
      ++count;
  });
  return count;
}

// Kernels of the backward pass: one, two that stream over columns, or those that store the scores.
enum class Backward { kOne, kStreamed, kApart };

void check(const test::AttentionBackwardCase& c, Backward kind = Backward::kOne) {
  const bool one = kind == Backward::kOne, fuses = kind != Backward::kApart;
  const GpuTarget target = gpu_target("sm_90a");
  const loop::Program before = loop::parse_program(test::attention_backward_text(c));
  loop::verify(before);
  loop::Program after = before;
  std::vector<Decision> decisions;
  fuse_attention_backward(after, target, &decisions);
  loop::eliminate_dead_code(after);
  loop::verify(after);
  CAPTURE(decisions.empty() ? "attention was not found" : decisions[0].reason);
  CHECK(kernels_named(after, true) == (one ? 1 : 0));
  chain_gpu(after, target);
  loop::verify(after);
  CHECK(kernels_named(after, false) == (fuses ? 1 : 0));
  CHECK(after.steps.size() == (one ? 4 : fuses ? 6 + c.gathered : before.steps.size()));
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < before.inputs.size(); ++i) {
    const loop::Buffer& buffer = before[before.inputs[i]];
    inputs.push_back(test::drawn_tensor(buffer.dtype, test::shape_of(buffer), static_cast<int>(i),
                                        [&](double unit) { return 2 * unit - 1; }));
  }
  const auto want = loop::interpret(before, inputs), got = loop::interpret(after, inputs);
  for (size_t o = 0; o < want.size(); ++o) {
    double error = 0, largest = 0;
    for (int64_t i = 0; i < loop::element_count(want[o]); ++i) {
      error = std::max(error, std::abs(loop::get_number(got[o], i) - loop::get_number(want[o], i)));
      largest = std::max(largest, std::abs(loop::get_number(want[o], i)));
    }
    INFO("output ", o);
    CHECK(largest > 0.01);
    CHECK(error <= 1.6e-2 * largest);
  }
}

TEST_CASE("attention's backward pass as one nest") {
  check({});
  check({.causal = true});
  check({.causal = true, .safe = true});
}

TEST_CASE("attention's backward pass has one candidate, its default") {
  const GpuTarget target = gpu_target("sm_90a");
  loop::Program p = loop::parse_program(test::attention_backward_text({}));
  fuse_attention_backward(p, target);
  loop::eliminate_dead_code(p);
  loop::for_each_step(p.steps, [&](const loop::Step& step) {
    const loop::Nest& nest = p[std::get<loop::Launch>(step.node).nest];
    if (!kernels::match_flash_backward(p, nest)) return;
    const auto space = candidates(p, nest, target, {});
    REQUIRE(space.size() == 1);
    CHECK(space[0].schedule == default_schedule(p, nest, target));
    CHECK(space[0].schedule.kernel == kernels::kFlashBackward);
    CHECK(refusal(p, nest, target, space[0].schedule).empty());
  });
}

TEST_CASE("attention with masks in memory, or whose gradient is 0 at other keys than its mask hides") {
  check({.additive = true}, Backward::kStreamed);
  check({.hidden = true}, Backward::kStreamed);
  check({.hidden = true, .gathered = true}, Backward::kStreamed);
  check({.capped = true}, Backward::kStreamed);
  check({.other_mask = true}, Backward::kStreamed);
  check({.causal = true, .other_mask = true}, Backward::kStreamed);
}

TEST_CASE("attention of one sequence, whose nests have no dim of the batch") {
  check({.single = true});
  check({.causal = true, .safe = true, .single = true});
  check({.additive = true, .single = true}, Backward::kStreamed);
  check({.capped = true, .single = true}, Backward::kStreamed);
}

TEST_CASE("attention of which a factor changes between the passes") {
  check({.changes = true}, Backward::kApart);
}

TEST_CASE("attention whose probabilities are needed in memory") {
  check({.extra = R"(    nest 11 copy (%b<2, %h<2, %m<70, %n<70)
      %0 : f32 = load p[%b, %h, %m, %n]
      store x[%b, %h, %m, %n] %0
)",
         .outputs = "o, dq, dk, dv, x"},
        Backward::kApart);
}

}  // namespace
}  // namespace stridec::schedule
