// Random legal schedules of the nests of random programs, compiled, against the interpreter.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "compiler/codegen/cpu/build_run.h"
#include "compiler/loop/text.h"
#include "compiler/loop/walk.h"
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

std::vector<HostTensor> random_inputs(const Program& program, const Bindings& sizes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<HostTensor> inputs;
  for (BufferId id : program.inputs) {
    std::vector<int64_t> shape;
    for (sym::Expr dim : program[id].shape)
      shape.push_back(
          *sym::evaluate(dim, [&](sym::Expr v) -> std::optional<int64_t> { return sizes.at(v); }));
    HostTensor tensor = make_tensor(program[id].dtype, shape);
    for (int64_t i = 0; i < element_count(tensor); ++i)
      set_number(tensor, i, std::uniform_real_distribution<double>(-2, 2)(random));
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

bool close(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  for (size_t o = 0; o < a.size(); ++o) {
    if (a[o].shape != b[o].shape) return false;
    for (int64_t i = 0; i < element_count(a[o]); ++i) {
      const double x = get_number(a[o], i), y = get_number(b[o], i);
      if (!(std::abs(x - y) <= 2e-5 * std::max(1.0, std::abs(x))) && !(std::isnan(x) && std::isnan(y)))
        return false;
    }
  }
  return true;
}

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
      CHECK(close(interpret(p.program, inputs), compiled.run(inputs)));
    }
  }
}
