#include "tests/unit/codegen_cuda/memory_bound.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/heuristics/choose_gpu.h"
#include "tests/support/emulate.h"
#include "tests/support/random_tensor.h"
#include "tests/support/sample.h"

namespace stridec::codegen::cuda {

using loop::HostTensor;

namespace {

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

}  // namespace

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

std::string first_text(loop::Program program) {
  schedule::choose_gpu(program, gpu_target("sm_90a"));
  return emit_nest(program, program.nests[0], gpu_target("sm_90a")).choices[0].launches[0].code.text;
}

void check(const Program& p, const std::string& dtype, const Sizes& sizes, int team,
           const std::string& schedule, const GpuTarget& target) {
  INFO(p.name, " of ", dtype, " ", join(sizes.shape, "x", [](int64_t n) { return cat(n); }),
       std::string(sizes.fixed ? " fixed" : ""));
  const loop::Program given = parse(p, dtype, sizes);
  loop::verify(given);
  const std::string shape = join(sizes.shape, "x", [](int64_t n) { return cat(n); });
  if (!test::in_sample(cat(loop::to_string(given), shape, " ", team, schedule), 4)) return;
  loop::Program program = given;
  if (!schedule.empty()) program.nests[0].schedule = loop::parse_schedule(schedule);
  schedule::choose_gpu(program, target);
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
    const auto got = test::emulate(program, inputs, target, choice, &choices);
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

const Program kNorm = {"rows that are scaled by a sum of theirs, in f32", R"(  input x T [d0, d1] ordinal 0
  output y T [d0, d1] ordinal 0
  inputs (x)
  outputs (y)
  steps
    nest 0 norm (%i<d0)
      %0 : f32 = reduce sum (%j<d1)
        %1 : T = load x[%i, %j]
        %2 : f32 = cast %1
        yield %2
      %3 : f32 = rsqrt %0
      for (%k<d1)
        %4 : T = load x[%i, %k]
        %5 : f32 = cast %4
        %6 : f32 = mul %5 %3
        %7 : T = cast_sat %6
        store y[%i, %k] %7
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

}  // namespace stridec::codegen::cuda
