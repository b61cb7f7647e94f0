#include "compiler/schedule/fusion/explain_unfused.h"

#include <doctest/doctest.h>

#include "compiler/loop/walk.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;

namespace {

// Two GEMMs in sequence, each with a fused consumer; `node` of each pair.
struct Two {
  Program program;
  std::vector<Decision> decisions;
  std::vector<Kernel> kernels;
};
Two two_products(const std::string& first, const std::string& second) {
  Pieces p("two");
  const auto act = [](auto v) { return unary(ScalarOp::kTanh, v[0]); };
  const View h = p.map("act", {p.product(p.input("x", {p.n, 5}), 5, 6, 1)}, act);
  const size_t own = p.program.nests.size();
  p.output("y", p.map("act", {p.product(h, 6, 7, 2)}, act));
  for (size_t i = 0; i < p.program.nests.size(); ++i) p.program.nests[i].nodes = {i < own ? first : second};
  Two two{.program = std::move(p.program), .decisions = {}, .kernels = {}};
  fuse(two.program, {.decisions = &two.decisions});
  two.kernels = kernels_of(two.program);
  REQUIRE(two.kernels.size() == 2);
  return two;
}

}  // namespace

TEST_CASE("separate kernels that pass data are listed with the rules' reasons, by nodes or by buffer") {
  for (const std::string second : {"node 1 'b' (Gemm)", "node 0 'a' (LSTM)"}) {
    const Two two = two_products("node 0 'a' (LSTM)", second);
    const auto found = explain_unfused(two.program, two.kernels, two.decisions);
    REQUIRE(found.size() == 1);
    CHECK(found[0].producer == &two.kernels[0]);
    CHECK(found[0].consumer == &two.kernels[1]);
    REQUIRE(found[0].reasons.size() == 2);
    CHECK(found[0].reasons[0].starts_with("not inlined: "));
    CHECK(found[0].reasons[1].starts_with("not merged: "));
  }
}

TEST_CASE("of kernels of one node a decision about what does not pass between them says nothing") {
  Two two = two_products("node 0 'a' (LSTM)", "node 0 'a' (LSTM)");
  for (Decision& decision : two.decisions) decision.passing = {"elsewhere"};
  CHECK(explain_unfused(two.program, two.kernels, two.decisions)[0].reasons.empty());
  // It does pass where the buffer lies in another one by now.
  const std::string between = two.program[effects_of(two.program[two.kernels[0].nests[0]]).writes[0]].name;
  two.decisions.push_back({.producer = "elsewhere",
                           .consumer = between,
                           .fused = true,
                           .reason = "lies in it",
                           .producer_nodes = {},
                           .consumer_nodes = {},
                           .passing = {"elsewhere"}});
  CHECK(explain_unfused(two.program, two.kernels, two.decisions)[0].reasons.size() == 2);
  two.decisions.pop_back();
  // A decision that split the work into several kernels is reported.
  two.decisions.push_back(decision_about(two.program.nests[0], "padding", true, "it reads a padded copy"));
  CHECK(explain_unfused(two.program, two.kernels, two.decisions)[0].reasons ==
        std::vector<std::string>{"padding: it reads a padded copy"});
  // A loop around one of them is a reason too.
  Step inner = two.program.steps[1];
  two.program.steps[1].node = While{.counter = sym::var("i"),
                                    .trip_count = 3,
                                    .condition = {},
                                    .iterations = sym::var("done"),
                                    .body = {inner}};
  CHECK(explain_unfused(two.program, two.kernels, {})[0].reasons ==
        std::vector<std::string>{"a loop or a branch has one of them alone"});
}

TEST_CASE("kernels that one rule refused and another fused are not listed, nor those of one tiled group") {
  Two two = two_products("node 0 'a' (Gemm)", "node 1 'b' (Gemm)");
  const auto launched = std::get<Launch>(two.program.steps[0].node).nest,
             other = std::get<Launch>(two.program.steps[1].node).nest;
  TiledGroup strips{.name = "both",
                    .first = {},
                    .size = {},
                    .points = 1,
                    .round = {},
                    .sizes = {},
                    .body = two.program.steps,
                    .own = {}};
  strips.own = {effects_of(two.program[launched]).writes[0]};
  two.program.steps = {Step{strips}};
  const std::vector<Kernel> kernels = kernels_of(two.program);
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].nests == std::vector{launched, other});
  CHECK(explain_unfused(two.program, kernels, two.decisions).empty());
}

TEST_CASE("adjacent kernels that might have been one are listed as well") {
  Pieces p("siblings");
  const View x = p.input("x", {p.n, 5});
  p.output("y", p.product(x, 5, 6, 1));
  p.output("z", p.product(x, 5, 7, 2));
  fuse(p.program);
  REQUIRE(p.program.nests.size() == 2);
  p.program.nests[0].nodes = {"node 0 'a' (Gemm)"}, p.program.nests[1].nodes = {"node 1 'b' (Gemm)"};
  const std::vector<Kernel> kernels = kernels_of(p.program);
  const Decision decision = decision_about(p.program, p.program.nests[0], p.program.nests[1], false,
                                           "not one product: too slow", 8);
  CHECK(decision.passing.empty());
  const auto found = explain_unfused(p.program, kernels, {decision, decision});
  REQUIRE(found.size() == 1);
  CHECK(found[0].reasons == std::vector<std::string>{"not one product: too slow"});
  CHECK(found[0].producer->nodes == p.program.nests[0].nodes);
}
