// Random legal schedules of the nests of random programs, compiled, against the interpreter.
#include <doctest/doctest.h>

#include <random>

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/text.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/candidates.h"
#include "compiler/schedule/choose.h"
#include "compiler/schedule/fusion.h"
#include "compiler/schedule/layout.h"
#include "compiler/schedule/schedule.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;
using schedule::LoopPlan;

namespace {

class RandomPlans {
 public:
  explicit RandomPlans(uint32_t seed) : random_(seed) {}

  // Any plan that the directives' descriptions allow, good or not.
  void choose(const Program& program, Nest& nest) {
    LoopPlan plan;
    for (size_t i = 0; i + 1 < nest.dims.size(); ++i)
      if (flip() && schedule::can_merge(program, nest, nest.dims[i].var, nest.dims[i + 1].var)) {
        plan.reshapes.push_back({.merge = {nest.dims[i].var, nest.dims[i + 1].var}, .split = {}});
        break;
      }
    const Nest shaped = schedule::reshaped(program, nest, plan);
    std::vector<sym::Expr> dims;
    for (const Dim& dim : shaped.dims) dims.push_back(dim.var);
    std::shuffle(dims.begin(), dims.end(), random_);
    const size_t tasks = dims.empty() ? 0 : random_() % (dims.size() + 1);
    plan.tasks.assign(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(tasks));
    plan.order.assign(dims.begin() + static_cast<std::ptrdiff_t>(tasks), dims.end());
    plan.chunk = 1 + random_() % 5;
    plan.grain = 1 + random_() % 3;
    if (flip() && !dims.empty()) {
      plan.width[dims[random_() % dims.size()]] = lanes();
    } else {
      for_each_stmt(shaped.body, [&](const Stmt& stmt) {
        if (std::holds_alternative<Scan>(stmt.node)) return;
        for (const Dim& dim : dims_of(stmt))
          if (flip()) {
            plan.width[dim.var] = lanes();
            plan.accumulators[dim.var] = 1 + static_cast<int>(random_() % 4);
            return;
          }
      });
    }
    nest.schedule = {"", schedule::directives(plan)};
  }

 private:
  bool flip() { return random_() % 2 == 0; }
  int lanes() { return 4 << (random_() % 3); }
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("random schedules of random programs give what the interpreter gives") {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const Pieces p = random_program(seed);
    Program scheduled = p.program;
    schedule::fuse(scheduled);
    if (seed % 2) schedule::choose_layouts(scheduled);
    RandomPlans plans(seed);
    for (Nest& nest : scheduled.nests) plans.choose(scheduled, nest);
    codegen::cpu::CompiledProgram compiled(scheduled);
    for (int64_t n : {0, 1, 7, 33}) {
      CAPTURE(n);
      const auto inputs = random_inputs(p.program, {{p.n, n}, {p.m, 4}}, seed);
      CHECK(close(interpret(p.program, inputs), compiled.run(inputs), 2e-5));
    }
  }
}

TEST_CASE("schedules drawn from the tuner's space give what the interpreter gives") {
  const CpuTarget& target = cpu_target("native");
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const Pieces p = random_program(seed);
    Program scheduled = p.program;
    schedule::fuse(scheduled);
    if (seed % 2) schedule::choose_layouts(scheduled);
    std::mt19937 random(seed);
    schedule::Chosen chosen;
    for (size_t i = 0; i < scheduled.nests.size(); ++i) {
      const auto space = schedule::candidates(scheduled, scheduled.nests[i], target);
      REQUIRE(!space.empty());
      chosen[NestId(static_cast<int64_t>(i))] = space[random() % space.size()].schedule;
    }
    schedule::choose(scheduled, target, chosen);
    codegen::cpu::CompiledProgram compiled(scheduled);
    for (int64_t n : {0, 1, 7, 33}) {
      CAPTURE(n);
      const auto inputs = random_inputs(p.program, {{p.n, n}, {p.m, 4}}, seed);
      CHECK(close(interpret(p.program, inputs), compiled.run(inputs), 2e-5));
    }
  }
}
