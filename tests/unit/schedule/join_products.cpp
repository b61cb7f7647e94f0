#include "compiler/schedule/join_products.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion.h"
#include "compiler/schedule/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;

namespace {

Value bend(const std::vector<Value>& v) { return unary(ScalarOp::kTanh, v[0]); }
Value add(const std::vector<Value>& v) { return v[0] + v[1]; }

// x * weights + bias, bent.
View layer(Pieces& p, const View& x, int64_t depth, int64_t columns, uint32_t seed, bool bent = true) {
  const View product = p.matmul(x, p.weight(cat("w", seed), {depth, columns}, seed));
  const View sum = p.map("add", {product, p.weight(cat("b", seed), {columns}, seed + 50)}, add);
  return bent ? p.map("tanh", {sum}, bend) : sum;
}

struct Result {
  Program program;
  std::vector<Decision> decisions;
  int launches = 0;
};

// Fused, then joined, which means the same and follows the rules.
Result joined(const Pieces& p) {
  Program fused = p.program;
  fuse(fused, {});
  Result result{.program = fused};
  join_products(result.program, &result.decisions);
  verify(result.program);
  for_each_step(result.program.steps,
                [&](const Step& step) { result.launches += std::holds_alternative<Launch>(step.node); });
  Program planned = result.program;
  plan_memory(planned);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{0, 1}, {1, 1}, {7, 5}}) {
    CAPTURE(to_string(result.program));
    CHECK(same_results(p.program, planned, {{p.n, n}, {p.m, m}}));
  }
  return result;
}

}  // namespace

TEST_CASE("three products of few columns are one, whose weights and biases lie behind each other") {
  Pieces p("heads");
  const View x = p.input("x", {p.n, 12});
  p.output("a", layer(p, x, 12, 10, 1));
  p.output("b", layer(p, x, 12, 4, 2));
  p.output("c", layer(p, x, 12, 3, 3));
  const Result result = joined(p);
  CHECK(result.launches == 1);
  REQUIRE(result.decisions.size() == 2);
  CHECK(result.decisions[0].reason == "one product of 10 and 4 columns");
  CHECK(result.decisions[1].reason == "one product of 14 and 3 columns");
  CHECK(result.decisions[1].fused);
  CHECK(result.program.prepack.size() == 8);
}

TEST_CASE("a product of few columns joins one of many; what reads one of them runs behind both") {
  Pieces p("read");
  const View x = p.input("x", {p.n, 12});
  const View a = layer(p, x, 12, 100, 1);
  const View b = layer(p, a, 100, 7, 2);
  p.output("b", b);
  p.output("c", layer(p, x, 12, 8, 3));
  const Result result = joined(p);
  CHECK(result.launches == 2);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].reason == "one product of 100 and 8 columns");
}

TEST_CASE("products that stay apart") {
  const auto reasons = [](auto&& build) {
    Pieces p("apart");
    build(p, p.input("x", {p.n, 12}));
    const Result result = joined(p);
    CHECK(result.launches == 2);
    std::string text;
    for (const Decision& decision : result.decisions) text += decision.reason;
    return text;
  };
  CHECK(reasons([](Pieces& p, const View& x) {
          p.output("a", layer(p, x, 12, 100, 1));
          p.output("b", layer(p, x, 12, 65, 2));
        }) == "both have more than 64 columns and use what they share often");
  // Another epilogue, another value, another depth; matrices that are no weights.
  CHECK(reasons([](Pieces& p, const View& x) {
          p.output("a", layer(p, x, 12, 10, 1));
          p.output("b", layer(p, x, 12, 4, 2, false));
        }) == "");
  CHECK(reasons([](Pieces& p, const View& x) {
          p.output("a", layer(p, x, 12, 10, 1));
          p.output("b", layer(p, p.input("other", {p.n, 12}), 12, 4, 2));
        }) == "");
  CHECK(reasons([](Pieces& p, const View& x) {
          p.output("a", p.matmul(x, p.input("v", {12, 10})));
          p.output("b", p.matmul(x, p.input("w", {12, 4})));
        }) == "");
  // One needs the other.
  CHECK(reasons([](Pieces& p, const View& x) {
          const View a = layer(p, x, 12, 12, 1);
          p.output("a", layer(p, a, 12, 4, 2));
        }) == "");
}
