#include "compiler/passes/autocast.h"

#include "compiler/base/diagnostic.h"
#include "compiler/graph/verify.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/normalization.h"
#include "tests/unit/passes/numbers.h"

using namespace stridec;
using graph::Builder;
using graph::Graph;
using graph::OpKind;
using ops::Term;
using test::drawn;
using test::drawn_constant;

TEST_CASE("factors are rounded once, results are f32") {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kTF32}) {
    Graph g;
    Builder b(g, ops::shape_table());
    const Term x(b, b.input("x", {DType::kF32, {3, 20}}));
    const Term normal = softmax(x, {1});
    const Term p = matmul(normal, drawn_constant(b, DType::kF32, {20, 7}, 1)),
               q = matmul(normal, drawn_constant(b, DType::kF32, {20, 7}, 2));
    b.output("y", matmul(p, permute(q, {1, 0})));
    graph::eliminate_dead_code(g);
    Graph after = g;
    passes::autocast(after, dtype);
    CHECK(graph::problems(after, ops::shape_table()).empty());
    CHECK(test::count(after, OpKind::kDotGeneral, dtype) == 3);
    CHECK(test::count(after, OpKind::kDotGeneral, DType::kF32) == 0);
    CHECK(test::count(after, OpKind::kCast, DType::kF32) == 5);  // normal, two weights, p, q
    CHECK(after[after.top.results[0]].type.dtype == DType::kF32);
    const double error = test::difference(g, after, {drawn(DType::kF32, {3, 20}, 5)});
    CHECK(error > 0);
    CHECK(error < (dtype == DType::kBF16 ? 2e-2 : 2e-3));
  }
}

TEST_CASE("what is narrow or wide already stays, and fp32 changes nothing") {
  Graph g;
  Builder b(g, ops::shape_table());
  const Term x(b, b.input("x", {DType::kF64, {3, 20}})), h(b, b.input("h", {DType::kF16, {20, 3}}));
  b.output("y", matmul(x, drawn_constant(b, DType::kF64, {20, 7}, 1)));
  b.output("z", matmul(cast(h, DType::kF32), drawn_constant(b, DType::kF32, {3, 4}, 1)));
  graph::eliminate_dead_code(g);
  Graph same = g, half = g;
  passes::autocast(same, DType::kF32);
  CHECK(test::count(same, OpKind::kDotGeneral, DType::kF32) == 1);
  passes::autocast(half, DType::kF16);
  CHECK(test::count(half, OpKind::kDotGeneral, DType::kF64) == 1);
  CHECK(test::count(half, OpKind::kCast, DType::kF32) == 1);  // the weights; the data was f16
}

TEST_CASE("precisions by name") {
  CHECK(passes::precision("bf16").factors == DType::kBF16);
  CHECK(passes::precision("tf32").factors == DType::kTF32);
  CHECK(passes::precisions()[0].name == "fp32");
  CHECK_THROWS_AS(passes::precision("int3"), Error);
}
