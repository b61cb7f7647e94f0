// Attention's forward pass and its backward pass as chains on the CPU, against the interpreter.
#include "compiler/schedule/fusion/attention_backward.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/kernels/chain.h"
#include "compiler/kernels/chain_range.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/heuristics/choose.h"
#include "tests/support/attention_backward_case.h"
#include "tests/support/random_tensor.h"

using namespace stridec;
using loop::HostTensor;
using loop::Program;
using test::AttentionBackwardCase;

namespace {

Program chained(const AttentionBackwardCase& c, double large = 64 << 20) {
  Program program = loop::parse_program(test::attention_backward_text(c));
  loop::verify(program);
  schedule::chain_attention_backward(program, nullptr, large);
  loop::eliminate_dead_code(program);
  loop::verify(program);
  schedule::chain(program);
  loop::verify(program);
  return program;
}

int chains_of(const Program& program) {
  return static_cast<int>(std::ranges::count_if(program.steps, [&](const loop::Step& step) {
    return kernels::match_chain(program[std::get<loop::Launch>(step.node).nest]).has_value();
  }));
}

int ranges_of(const Program& program) {
  int count = 0;
  for (const loop::Step& step : program.steps)
    if (const auto chain = kernels::match_chain(program[std::get<loop::Launch>(step.node).nest]))
      count += kernels::chain_range(program, *chain).has_value();
  return count;
}

struct Sizes {
  int64_t rows, keys;
};

std::vector<HostTensor> inputs_of(const Program& program, const Sizes& sizes) {
  std::vector<HostTensor> inputs;
  for (const loop::BufferId id : program.inputs) {
    const loop::Buffer& buffer = program[id];
    std::vector<int64_t> shape;
    for (const sym::Expr dim : buffer.shape)
      shape.push_back(dim.is_const() ? dim.value() : dim == sym::var("rows") ? sizes.rows : sizes.keys);
    inputs.push_back(test::drawn_tensor(buffer.dtype, shape, static_cast<int>(inputs.size()),
                                        [](double unit) { return 2 * unit - 1; }));
  }
  return inputs;
}

void check(const AttentionBackwardCase& c, int chains, const std::vector<Sizes>& all,
           double large = 64 << 20) {
  const Program before = loop::parse_program(test::attention_backward_text(c)), after = chained(c, large);
  CHECK(chains_of(after) == chains);
  if (c.causal && !c.other_mask && chains == 3) CHECK(ranges_of(after) == 2);
  for (const CpuTarget& target : cpu_targets()) {
    const CpuTarget& native = cpu_target("native");
    if (target.name != native.name &&
        (target.vector_bytes >= native.vector_bytes || target.tune != "generic"))
      continue;
    Program made = after;
    schedule::choose(made, target, {});
    codegen::cpu::CompiledProgram whole(made, {.target = target, .parts = 1}),
        shared(made, {.target = target, .parts = 3});
    for (const Sizes& sizes : all) {
      CAPTURE(target.name);
      CAPTURE(sizes.rows);
      CAPTURE(sizes.keys);
      const auto inputs = inputs_of(before, sizes);
      const auto want = loop::interpret(before, inputs), got = whole.run(inputs), same = shared.run(inputs);
      for (size_t o = 0; o < want.size(); ++o) {
        double error = 0, largest = 1e-30;
        for (int64_t i = 0; i < loop::element_count(want[o]); ++i) {
          error = std::max(error, std::abs(loop::get_number(got[o], i) - loop::get_number(want[o], i)));
          largest = std::max(largest, std::abs(loop::get_number(want[o], i)));
        }
        CAPTURE(o);
        // With one key, dq and dk are roundings.
        CHECK(error <= (std::string(c.dtype) == "f32" ? 2e-5 : 1.6e-2) * largest + 1e-6);
        CHECK(same[o].bytes == got[o].bytes);
      }
    }
  }
}

constexpr const char* kSymbols =
    "  symbol rows = input 0 dim 2 in 0..4096\n  symbol keys = input 1 dim 2 in 0..4096\n";

}  // namespace

TEST_CASE("attention with a causal mask is three chains, whose blocks skip hidden keys and rows") {
  check({.causal = true, .dtype = "f32"}, 3, {{70, 70}});
  check({.causal = true, .safe = true, .dtype = "f32", .rows = "200", .keys = "131", .depth = "40"}, 3,
        {{200, 131}});
  check({.causal = true, .dtype = "bf16"}, 3, {{70, 70}});
  check({.causal = true,
         .dtype = "f32",
         .rows = "rows",
         .keys = "keys",
         .ahead = "keys - rows",
         .symbols = kSymbols},
        3, {{1, 1}, {5, 150}, {97, 97}, {0, 3}});
}

TEST_CASE("a mask in memory is added to the scores again") {
  check({.additive = true, .dtype = "f32", .rows = "70", .keys = "90"}, 3, {{70, 90}}, 0);
  check({.hidden = true, .dtype = "f32", .rows = "70", .keys = "90"}, 3, {{70, 90}}, 0);
  check({.hidden = true, .gathered = true, .dtype = "f32", .rows = "70", .keys = "90"}, 3, {{70, 90}}, 0);
  check({.hidden = true, .single = true, .dtype = "f32", .rows = "70", .keys = "90"}, 3, {{70, 90}}, 0);
  check({.capped = true, .dtype = "f32", .rows = "70", .keys = "90"}, 3, {{70, 90}}, 0);
  check({.causal = true, .other_mask = true, .dtype = "f32"}, 3, {{70, 70}}, 0);
  check({.dtype = "f32", .depth = "17"}, 3, {{70, 70}}, 0);
}

// The lowest number added to each score of a row leaves equal weights, of which the sum's logarithm is no
// part of the maximum.
TEST_CASE("rows in which all keys are masked by the lowest number") {
  const AttentionBackwardCase c{.additive = true, .dtype = "f32", .rows = "30", .keys = "40"};
  const Program before = loop::parse_program(test::attention_backward_text(c));
  Program after = chained(c, 0);
  schedule::choose(after, cpu_target("native"), {});
  auto inputs = inputs_of(before, {30, 40});
  for (int64_t key = 0; key < 40; ++key)
    loop::set_number(inputs[4], 7 * 40 + key, std::numeric_limits<float>::lowest());
  codegen::cpu::CompiledProgram compiled(after, {.parts = 1});
  const auto want = loop::interpret(before, inputs), got = compiled.run(inputs);
  for (size_t o = 0; o < want.size(); ++o)
    for (int64_t i = 0; i < loop::element_count(want[o]); ++i)
      REQUIRE(std::abs(loop::get_number(got[o], i) - loop::get_number(want[o], i)) < 1e-5);
}

TEST_CASE("small attention without a mask keeps its probabilities") {
  check({.dtype = "f32"}, 0, {{70, 70}});
  check({.causal = true, .changes = true, .dtype = "f32"}, 0, {{70, 70}});
}

TEST_CASE("columns that a block of rows does not have are not read") {
  const Program program = chained({.causal = true, .dtype = "f32", .rows = "200", .keys = "200"});
  Program made = program;
  schedule::choose(made, cpu_target("native"), {});
  codegen::cpu::CompiledProgram compiled(made, {.parts = 1});
  const auto inputs = inputs_of(program, {200, 200});
  const auto clean = compiled.run(inputs);
  const auto at = [](int64_t head, int64_t row) { return (head * 200 + row) * 64; };
  const auto without = [&](size_t input, int64_t row) {
    auto changed = inputs;
    for (int64_t head = 0; head < 4; ++head)
      for (int64_t d = 0; d < 64; ++d)
        loop::set_number(changed[input], at(head, row) + d, std::numeric_limits<double>::quiet_NaN());
    return compiled.run(changed);
  };
  const auto equal = [&](const std::vector<HostTensor>& got, size_t output, int64_t row) {
    bool same = true;
    for (int64_t head = 0; head < 4; ++head)
      for (int64_t d = 0; d < 64; ++d)
        same = same && loop::get_number(got[output], at(head, row) + d) ==
                           loop::get_number(clean[output], at(head, row) + d);
    return same;
  };
  // The last key, which the first blocks of rows do not see.
  const auto no_key = without(1, 199);
  CHECK(equal(no_key, 0, 20));  // o
  CHECK(equal(no_key, 1, 20));  // dq
  CHECK(!equal(no_key, 1, 199));
  // The gradient of the first row, which does not see the last blocks of keys.
  const auto no_row = without(3, 0);
  CHECK(equal(no_row, 2, 150));  // dk
  CHECK(equal(no_row, 3, 150));  // dv
  CHECK(!equal(no_row, 3, 0));
}
