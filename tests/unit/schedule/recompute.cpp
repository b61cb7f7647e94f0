#include "compiler/schedule/memory/recompute.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/heuristics/concurrent_launches.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;
using sym::Expr;

namespace {

int64_t arena_of(Program program) {
  plan_memory(program);
  return static_cast<int64_t>(typical(program.arena_bytes, program.facts));
}

// `layers` products and activations, then what a backward pass does: the same tensors in the reverse order.
Pieces forward_and_back(int layers) {
  Pieces p("chain");
  View x = p.input("x", {p.n, 64});
  std::vector<View> kept = {x};
  for (int i = 0; i < layers; ++i) {
    x = p.product(x, 64, 64, static_cast<uint32_t>(i + 1));
    x = p.map(cat("act", i), {x}, [](const auto& v) { return max(v[0], v[0] * v[0]); });
    kept.push_back(x);
  }
  View g = kept.back();
  for (int i = layers; i-- > 0;)
    g = p.map(cat("back", i), {g, kept[static_cast<size_t>(i)]}, [](const auto& v) { return v[0] * v[1]; });
  p.output("y", g);
  return p;
}

int launches(const Program& program) { return static_cast<int>(program.steps.size()); }

Program at_budget(const Program& before, const MemoryBudget& budget, RecomputePlan* plan = nullptr) {
  Program after = before;
  const RecomputePlan made = recompute(after, budget, arena_of);
  CHECK(made.arena == arena_of(after));
  CHECK(made.arena <= made.keeping_all);
  CHECK(made.arena >= made.least);
  if (plan) *plan = made;
  plan_memory(after);
  verify(after);
  return after;
}

Program parsed(std::string_view steps) {
  return parse_program(cat(R"(program t
  input x f32 [32, 64] ordinal 0
  input i f32 [32] ordinal 1
  output y f32 [32, 64] ordinal 0
  state s f32 [32, 64] ordinal 0
  arena t f32 [32, 64]
  arena a f32 [32, 64]
  arena b f32 [32, 64]
  inputs (x, i)
  outputs (y)
  states (s)
  steps
)",
                           steps));
}

}  // namespace

TEST_CASE("a budget shrinks the arena of a chain and its backward pass, and keeps all results") {
  const Pieces pieces = forward_and_back(64);
  int64_t last = 0;
  for (const double share : {0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0}) {
    RecomputePlan plan;
    const Program after = at_budget(pieces.program, {.share = share}, &plan);
    CHECK(plan.arena >= last);
    last = plan.arena;
    CHECK(plan.arena <=
          plan.least + static_cast<int64_t>(static_cast<double>(plan.keeping_all - plan.least) * share));
    CHECK(plan.recomputed.empty() == (share == 1));
    if (share == 0) CHECK(plan.arena * 3 <= plan.keeping_all);
    CHECK(same_results(pieces.program, after, {{pieces.n, 5}, {pieces.m, 3}}));
  }
}

TEST_CASE("a budget keeps launches that run at the same time together") {
  // In the reverse order each activation has two readers, which do not depend on each other.
  Pieces p("groups");
  std::vector<View> kept = {p.input("x", {p.n, 64})};
  for (int i = 0; i < 32; ++i)
    kept.push_back(p.map(cat("act", i), {kept.back()}, [](const auto& v) { return max(v[0], -v[0]); }));
  View g = kept.back(), h = kept.back();
  for (int i = 32; i-- > 0;) {
    const View each = kept[static_cast<size_t>(i)];
    g = p.map(cat("g", i), {g, each}, [](const auto& v) { return v[0] * v[1]; });
    h = p.map(cat("h", i), {h, each}, [](const auto& v) { return v[0] + v[1]; });
  }
  p.output("y", g), p.output("z", h);
  group_launches(p.program);
  const auto concurrent = [](const Program& program) {
    return std::ranges::count_if(program.steps, [](const Step& step) {
      const auto* launch = std::get_if<Launch>(&step.node);
      return launch && launch->concurrent;
    });
  };
  CHECK(concurrent(p.program) >= 32);
  for (const double share : {0.0, 0.5}) {
    const Program after = at_budget(p.program, {.share = share});
    CHECK(launches(after) > launches(p.program));
    CHECK(concurrent(after) == concurrent(p.program));
    CHECK(same_results(p.program, after, {{p.n, 5}, {p.m, 3}}));
  }
}

TEST_CASE("a budget in bytes") {
  const Pieces pieces = forward_and_back(8);
  const int64_t all = arena_of(pieces.program);
  RecomputePlan plan;
  CHECK(launches(at_budget(pieces.program, {.bytes = all}, &plan)) == launches(pieces.program));
  const int64_t least = plan.least;
  CHECK(least < all);
  at_budget(pieces.program, {.bytes = least}, &plan);
  CHECK(plan.arena == least);
  at_budget(pieces.program, {.bytes = 1}, &plan);  // out of reach: the least
  CHECK(plan.arena == least);
  at_budget(pieces.program, {.bytes = (all + least) / 2}, &plan);
  CHECK(plan.arena <= (all + least) / 2);
}

TEST_CASE("the report names what is computed again, and for which step") {
  const Pieces pieces = forward_and_back(8);
  RecomputePlan plan;
  const Program after = at_budget(pieces.program, {.share = 0}, &plan);
  REQUIRE(launches(after) == launches(pieces.program) + static_cast<int>(plan.recomputed.size()));
  for (const Recomputed& each : plan.recomputed) {
    CHECK(each.bytes == kTypicalSize * 64 * 4);
    CHECK(each.flops > 0);
    CHECK(each.before.starts_with("back"));
  }
}

TEST_CASE("random programs: the arena grows with the budget, and results stay") {
  int saving = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Pieces pieces = random_program(seed);
    int64_t last = 0;
    for (const double share : {0.0, 0.1, 0.5, 1.0}) {
      RecomputePlan plan;
      const Program after = at_budget(pieces.program, {.share = share}, &plan);
      CHECK(plan.arena >= last);
      last = plan.arena;
      if (share == 0 && plan.arena < plan.keeping_all) ++saving;
      if (share < 0.2) CHECK(same_results(pieces.program, after, {{pieces.n, 3}, {pieces.m, 2}}, seed));
    }
  }
  CHECK(saving >= 20);
}

namespace {

// t is live across the two steps between `first` and `last`, which need more memory than all others.
constexpr std::string_view kBetween = R"(
    nest 1 n1 (%i0<32, %i1<64)
      %0 : f32 = load x[%i0, %i1]
      store a[%i0, %i1] %0
    nest 2 n2 (%i0<32, %i1<64)
      %0 : f32 = load a[%i0, %i1]
      %1 : f32 = load a[%i0, 63 - %i1]
      %2 : f32 = add %0 %1
      store b[%i0, %i1] %2
    nest 3 n3 (%i0<32, %i1<64)
      %0 : f32 = load b[%i0, 63 - %i1]
      %1 : f32 = load t[%i0, %i1]
      %2 : f32 = add %0 %1
      store y[%i0, %i1] %2
)";

size_t recomputed(const Program& before) {
  RecomputePlan plan;
  at_budget(before, {.share = 0}, &plan);
  return plan.recomputed.size();
}

}  // namespace

TEST_CASE("a launch is repeated where its operands still have their values") {
  CHECK(recomputed(parsed(cat(R"(
    nest 0 n0 (%i0<32, %i1<64)
      %0 : f32 = load i[%i0]
      store t[%i0, %i1] %0
)",
                              kBetween))) == 1);
  // A state that a later step changes.
  CHECK(recomputed(parsed(cat(R"(
    nest 0 n0 (%i0<32, %i1<64)
      %0 : f32 = load s[%i0, %i1]
      store t[%i0, %i1] %0
    nest 4 n4 (%i0<32, %i1<64)
      %0 : f32 = load x[%i0, %i1]
      store s[%i0, %i1] %0
)",
                              kBetween))) == 0);
  // The launch itself changes the state that it reads.
  CHECK(recomputed(parsed(cat(R"(
    nest 0 n0 (%i0<32, %i1<64)
      %0 : f32 = load s[%i0, %i1]
      store t[%i0, %i1] %0
      store s[%i0, %i1] %0
)",
                              kBetween))) == 0);
  // Two steps write the tensor.
  CHECK(recomputed(parsed(cat(R"(
    nest 0 n0 (%i0<32, %i1<64)
      %0 : f32 = load i[%i0]
      store t[%i0, %i1] %0
    nest 4 n4 (%i0<32)
      %0 : f32 = load i[%i0]
      store t[%i0, 0] %0
)",
                              kBetween))) == 0);
}

TEST_CASE("a repetition does not store what the first run has stored to a state") {
  const Program before = parsed(cat(R"(
    nest 0 n0 (%i0<32, %i1<64)
      %0 : f32 = load i[%i0]
      store t[%i0, %i1] %0
      store s[%i0, %i1] %0
)",
                                    kBetween));
  const Program after = at_budget(before, {.share = 0});
  REQUIRE(launches(after) == launches(before) + 1);
  const Nest& again = after[std::get<Launch>(after.steps[3].node).nest];
  const loop::Effects effects = loop::effects_of(again);
  REQUIRE(effects.writes.size() == 1);
  CHECK(after[effects.writes[0]].name == "t_again");
}
