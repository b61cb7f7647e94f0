#include "tests/support/contraction_check.h"

#include <doctest/doctest.h>

#include <random>

#include "compiler/codegen/cpu/contraction.h"
#include "compiler/loop/text.h"
#include "compiler/schedule/choose_contraction.h"
#include "tests/support/contraction_harness.h"
#include "tests/support/tiles.h"

namespace stridec::test {

size_t drawn(size_t count) {
  static std::mt19937 random(7);
  return random() % count;
}

void check_plan(const Case& c, const kernels::GemmPlan& plan, const CpuTarget& target,
                const std::vector<loop::Bindings>& shapes) {
  loop::Nest nest = c.program[c.nest];
  nest.schedule = kernels::to_schedule(plan);
  CAPTURE(nest.name);
  CAPTURE(target.name);
  CAPTURE(loop::to_string(nest.schedule));
  const codegen::Kernel emitted = codegen::cpu::emit_contraction(c.program, nest, target);
  INFO(emitted.text);
  const CompiledKernel kernel(emitted, target);
  for (const loop::Bindings& shape : shapes) {
    Memory expected(c.program, shape), actual(c.program, shape), shared(c.program, shape);
    auto views = expected.views();
    loop::interpret(c.program, nest, shape, views);
    kernel.run(c.program, shape, actual.views(), 1);
    const double error = difference(c.program, nest, actual, expected);
    CHECK(error < 1e-5);
    CHECK_FALSE(kernel.meets_subnormals(shape, shared.views(), 3));
    CHECK(difference(c.program, nest, shared, actual) == 0);
  }
}

void check(const Case& c, const std::vector<loop::Bindings>& shapes) {
  const CpuTarget& native = cpu_target("native");
  const auto plans = schedule::contraction_plans(c.program, c.program[c.nest], native);
  REQUIRE(!plans.empty());
  for (const auto& ranked : plans) check_plan(c, ranked.plan, native, shapes);
  kernels::GemmPlan pieces = plans[0].plan;
  pieces.chunk = 5;
  pieces.tiles = 3;
  pieces.rows_outer = !pieces.rows_outer;
  check_plan(c, pieces, native, shapes);
  constexpr int kDraws = 3;
  const auto space = schedule::contraction_space(c.program, c.program[c.nest], native);
  for (int draw = 0; draw < kDraws; ++draw) check_plan(c, space[drawn(space.size())].plan, native, shapes);
  const CpuTarget tiled = target_with_tiles();
  bool first = true;
  for (const auto& ranked : schedule::contraction_plans(c.program, c.program[c.nest], tiled)) {
    if (!ranked.plan.kernel->tiles) continue;
    check_plan(c, ranked.plan, tiled, shapes);
    pieces = ranked.plan;
    pieces.chunk = 5;
    pieces.tiles = 3;
    pieces.rows_outer = !pieces.rows_outer;
    if (first) check_plan(c, pieces, tiled, shapes);
    first = false;
  }
  for (const CpuTarget& target : cpu_targets()) {
    if (target.vector_bytes >= native.vector_bytes || target.tune != "generic") continue;
    const auto others = schedule::contraction_plans(c.program, c.program[c.nest], target);
    REQUIRE(!others.empty());
    check_plan(c, others[0].plan, target, shapes);
  }
}

}  // namespace stridec::test
