#include "compiler/schedule/fusion/merge_gemms.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;

namespace {

Value bend(const std::vector<Value>& v) { return unary(ScalarOp::kTanh, v[0]); }
Value add(const std::vector<Value>& v) { return v[0] + v[1]; }

// x * weights + bias, with an activation if `bent`.
View layer(Pieces& p, const View& x, int64_t depth, int64_t columns, uint32_t seed, bool bent = true) {
  const View sum =
      p.map("add", {p.product(x, depth, columns, seed), p.weight(cat("b", seed), {columns}, seed + 50)}, add);
  return bent ? p.map("tanh", {sum}, bend) : sum;
}

struct Result {
  Program program;
  std::vector<Decision> decisions;
  int launches = 0;
};

// Fuses, then merges; verifies and compares with the original program.
Result joined(const Pieces& p) {
  Program fused = p.program;
  fuse(fused, {});
  Result result{.program = fused};
  merge_gemms(result.program, &result.decisions);
  loop::eliminate_dead_code(result.program);
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

TEST_CASE("three GEMMs of few columns become one, with concatenated weights and biases") {
  Pieces p("heads");
  const View x = p.input("x", {p.n, 12});
  p.output("a", layer(p, x, 12, 10, 1));
  p.output("b", layer(p, x, 12, 4, 2));
  p.output("c", layer(p, x, 12, 3, 3));
  const Result result = joined(p);
  CHECK(result.launches == 1);
  REQUIRE(result.decisions.size() == 2);
  CHECK(result.decisions[0].reason == "one product of 10 and 4 columns, 50 % of the time");
  CHECK(result.decisions[1].reason == "one product of 14 and 3 columns, 75 % of the time");
  CHECK(result.decisions[1].fused);
  CHECK(result.program.prepack.size() == 8);
}

TEST_CASE("a GEMM of few columns joins one of many; readers of either run after both") {
  Pieces p("read");
  const View x = p.input("x", {p.n, 12});
  const View a = layer(p, x, 12, 100, 1);
  const View b = layer(p, a, 100, 7, 2);
  p.output("b", b);
  p.output("c", layer(p, x, 12, 8, 3));
  const Result result = joined(p);
  CHECK(result.launches == 2);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].reason == "one product of 100 and 8 columns, 80 % of the time");
}

TEST_CASE("what follows the sums may differ, and read values of its own") {
  Pieces p("different");
  const View x = p.input("x", {p.n, 200});
  const View residual = p.input("r", {p.n, 4});
  p.output("a", layer(p, x, 200, 10, 1));
  p.output("b", p.map("add", {layer(p, x, 200, 4, 2, false), residual}, add));
  p.output("c", layer(p, x, 200, 17, 3, false));
  const Result result = joined(p);
  CHECK(result.launches == 1);
  REQUIRE(result.decisions.size() == 2);
  CHECK(result.decisions[0].fused);
  CHECK(result.decisions[1].fused);
}

TEST_CASE("numbers that differ are along the columns") {
  Pieces p("numbers");
  const View x = p.input("x", {p.n, 12});
  const auto scaled = [&](int64_t columns, uint32_t seed, double factor) {
    const View sum = layer(p, x, 12, columns, seed, false);
    return p.map("scale", {sum}, [&](const std::vector<Value>& v) {
      return v[0] * v[0].nest->constant(DType::kF32, factor);
    });
  };
  p.output("a", scaled(10, 1, 2));
  p.output("b", scaled(9, 2, 3));
  const Result result = joined(p);
  CHECK(result.launches == 1);
  // Weights, biases and factors of each GEMM.
  CHECK(result.program.prepack.size() == 6);
}

TEST_CASE("parts of one buffer are products that may pass each other, but not what one reads of the other") {
  Pieces p("parts");
  const View x = p.input("x", {p.n, 100});
  const View both = p.temporary("both", {p.n, 20});
  const auto part = [&](int64_t first, int64_t columns, uint32_t seed) {
    const View made = layer(p, x, 100, columns, seed);
    const View target = slice(both, 1, first, columns, 1);
    NestBuilder nest(p.program, "copy");
    const std::vector<sym::Expr> at = nest.dims(target.shape);
    nest.store(target, at, nest.load(made, at));
    nest.finish();
    return made;
  };
  part(0, 12, 1);
  part(12, 8, 2);
  p.output("y", p.map("bend", {both}, bend));
  CHECK(joined(p).launches == 2);

  Pieces q("read");
  const View v = q.input("x", {q.n, 100});
  const View a = layer(q, v, 100, 8, 1);
  q.output("a", a);
  q.output("b", q.map("add", {layer(q, v, 100, 8, 2), a}, add));
  const Result result = joined(q);
  CHECK(result.launches == 2);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].reason == "a step between them prevents it");
}

TEST_CASE("GEMMs that stay separate") {
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
          p.output("a", layer(p, x, 12, 480, 1));
          p.output("b", layer(p, x, 12, 480, 2));
        }) == "one GEMM would take 99 % of the time of both");
  // The epilogue is more work than the GEMMs.
  CHECK(reasons([](Pieces& p, const View& x) {
          p.output("a", layer(p, x, 12, 10, 1));
          p.output("b", layer(p, x, 12, 40, 2, false));
        }) == "one GEMM would take 234 % of the time of both");
  // Another input, another depth; right operands that are not weights.
  CHECK(reasons([](Pieces& p, const View& x) {
          p.output("a", layer(p, x, 12, 10, 1));
          p.output("b", layer(p, p.input("other", {p.n, 12}), 12, 4, 2));
        }) == "");
  CHECK(reasons([](Pieces& p, const View& x) {
          p.output("a", p.matmul(x, p.input("v", {12, 10})));
          p.output("b", p.matmul(x, p.input("w", {12, 4})));
        }) == "");
  // One GEMM depends on the other.
  CHECK(reasons([](Pieces& p, const View& x) {
          const View a = layer(p, x, 12, 12, 1);
          p.output("a", layer(p, a, 12, 4, 2));
        }) == "");
}
