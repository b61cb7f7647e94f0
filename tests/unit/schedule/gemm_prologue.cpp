#include "compiler/schedule/fusion/gemm_prologue.h"

#include <doctest/doctest.h>

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

struct Result {
  Program program;
  std::vector<Decision> decisions;
  int launches = 0;
};

// Fuses, then adds prologues; verifies and compares with the original program.
Result with_prologues(const Pieces& p) {
  Program fused = p.program;
  fuse(fused, {});
  Result result{.program = fused};
  fuse_gemm_prologues(result.program, &result.decisions);
  loop::eliminate_dead_code(result.program);
  verify(result.program);
  for_each_step(result.program.steps,
                [&](const Step& step) { result.launches += std::holds_alternative<Launch>(step.node); });
  Program planned = result.program;
  plan_memory(planned);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {7, 3}}) {
    CAPTURE(to_string(result.program));
    CHECK(same_results(p.program, planned, {{p.n, n}, {p.m, m}}));
  }
  return result;
}

Value relu(const Value& v) { return max(v, v.nest->constant(DType::kF32, 0)); }

// max(x * scale + shift, 0) with one scale and shift per column.
View normalised(Pieces& p, const View& x, int64_t columns) {
  return p.map("relu", {x, p.weight("scale", {columns}, 1), p.weight("shift", {columns}, 2)},
               [](const std::vector<Value>& v) { return relu(v[0] * v[1] + v[2]); });
}

}  // namespace

TEST_CASE("a normalisation and an activation are computed where the product copies its rows") {
  Pieces p("first");
  const View x = p.input("x", {p.n, 200});
  p.output("y", p.product(normalised(p, x, 200), 200, 100, 3));
  const Result result = with_prologues(p);
  CHECK(result.launches == 1);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].fused);
  CHECK(result.decisions[0].reason == "computed while the GEMM packs its rows");
}

TEST_CASE(
    "what makes a row in several steps joins the product as well, and so does what a number a row scales") {
  Pieces p("gate");
  const View x = p.input("x", {p.n, 200}), gate = p.input("gate", {p.n, 200}), scale = p.input("s", {p.n, 1});
  const View both =
      p.map("gate", {x, gate, scale}, [](const std::vector<Value>& v) { return v[0] * v[1] * v[2]; });
  p.output("y", p.product(both, 200, 100, 3));
  CHECK(with_prologues(p).launches == 1);
}

TEST_CASE("a product of few columns reads rows in place") {
  Pieces p("few");
  const View x = p.input("x", {p.n, 200});
  p.output("y", p.product(normalised(p, x, 200), 200, 80, 3));
  const Result result = with_prologues(p);
  CHECK(result.launches == 2);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].reason == "not inlined: the GEMM has only 80 columns");
}

TEST_CASE("rows that are made in 16 bits stay") {
  Pieces p("narrow");
  const View x = p.input("x", {p.n, 200}), w = p.weight("w", {200, 100}, 3);
  const View rows = p.map(
      "half", {x}, [](const std::vector<Value>& v) { return v[0].nest->cast(v[0] + v[0], DType::kBF16); },
      DType::kBF16);
  const View y = p.temporary("y", {p.n, 100});
  NestBuilder nest(p.program, "product");
  const sym::Expr n = nest.dim(p.n), j = nest.dim(100);
  nest.store(y, {n, j}, nest.reduce(Combine::kSum, {200}, [&](const std::vector<sym::Expr>& k) {
    return nest.cast(nest.load(rows, {n, k[0]}), DType::kF32) * nest.load(w, {k[0], j});
  }));
  nest.finish();
  p.output("out", y);
  const Result result = with_prologues(p);
  CHECK(result.launches == 2);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].reason == "not inlined: the intermediate has a narrow type");
}

TEST_CASE("rows that others read too, or that are outputs, are made once") {
  for (const bool output : {false, true}) {
    Pieces p("shared");
    const View x = p.input("x", {p.n, 200});
    const View rows = normalised(p, x, 200);
    p.output("y", p.product(rows, 200, 100, 3));
    if (output)
      p.output("z", rows);
    else
      p.output("z", p.product(rows, 200, 124, 5));
    const Result result = with_prologues(p);
    CHECK(result.launches == (output ? 2 : 3));
    for (const Decision& decision : result.decisions) CHECK(!decision.fused);
  }
}

TEST_CASE("small rows stay in a cache") {
  Pieces p("small");
  const View x = p.input("x", {p.n, 20});
  p.output("y", p.product(normalised(p, x, 20), 20, 100, 3));
  const Result result = with_prologues(p);
  CHECK(result.launches == 2);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].reason == "not inlined: the intermediate stays in a cache");
}

TEST_CASE("what costs more than copying keeps a kernel of its own") {
  Pieces p("costly");
  const View x = p.input("x", {p.n, 200});
  const View bent =
      p.map("bend", {x}, [](const std::vector<Value>& v) { return unary(ScalarOp::kErf, v[0]); });
  p.output("y", p.product(bent, 200, 100, 3));
  const Result result = with_prologues(p);
  CHECK(result.launches == 2);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].reason == "not inlined: a copy would cost more");
}

TEST_CASE("a window reads an element for several rows") {
  Pieces p("window");
  const View x = p.input("x", {p.n + 2, 200});
  const View rows = normalised(p, x, 200), w = p.weight("w", {3, 200, 100}, 3);
  const View y = p.temporary("y", {p.n, 100});
  NestBuilder nest(p.program, "window");
  const sym::Expr n = nest.dim(p.n), j = nest.dim(100);
  nest.store(y, {n, j}, nest.reduce(Combine::kSum, {3, 200}, [&](const std::vector<sym::Expr>& k) {
    return nest.load(rows, {n + k[0], k[1]}) * nest.load(w, {k[0], k[1], j});
  }));
  nest.finish();
  p.output("out", p.map("residual", {y, p.input("r", {p.n, 100})},
                        [](const std::vector<Value>& v) { return v[0] + v[1]; }));
  const Result result = with_prologues(p);
  CHECK(result.launches == 2);
  REQUIRE(result.decisions.size() == 1);
  CHECK(result.decisions[0].reason == "not inlined: the GEMM reads an element for several rows");
}

TEST_CASE("a copy that lets go of what it reads stays") {
  for (const int64_t stride : {1, 2}) {
    CAPTURE(stride);
    Pieces p("part");
    const View all = p.matmul(p.input("x", {p.n, 200}), p.weight("all", {200, 200 * stride}, 1));
    const View part = p.temporary("part", {p.n, 200});
    NestBuilder nest(p.program, "part");
    const std::vector<sym::Expr> at = nest.dims(part.shape);
    nest.store(part, at, nest.load(all, {at[0], at[1] * stride}));
    nest.finish();
    p.output("y", p.matmul(part, p.weight("w", {200, 100}, 3)));
    Program program = p.program;
    std::vector<Decision> decisions;
    fuse_gemm_prologues(program, &decisions);
    loop::eliminate_dead_code(program);
    verify(program);
    REQUIRE(decisions.size() == 1);
    CHECK(decisions[0].fused == (stride == 1));
    CHECK(decisions[0].reason == (stride == 1 ? "computed while the GEMM packs its rows"
                                              : "not inlined: its inputs would have to be kept for longer"));
    plan_memory(program);
    CHECK(same_results(p.program, program, {{p.n, 3}, {p.m, 1}}));
  }
}
