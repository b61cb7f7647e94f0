// Folding by the Builder while a graph is built, with negative tests.
#include <doctest/doctest.h>

#include "compiler/ops/helpers.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/tables.h"

using namespace stridec;
using namespace stridec::ops;

namespace {

struct Small {
  graph::Graph g;
  Builder b{g, shape_table()};
  ValueId input(DType dtype) { return b.input("x", {dtype, {sym::var("n"), 3}}); }
};

}  // namespace

// torch's exporter writes the numbers of a Range as floats, cast like one of its operands.
TEST_CASE("the integers that a float constant is cast to are known") {
  Small s;
  const auto known = [&](std::vector<double> values, DType from, DType to) {
    const Term x = float_table(s.b, values, from);
    return s.b.known(cast(x, to, false));
  };
  CHECK(known({0, 3, -2.75}, DType::kF32, DType::kI64) == std::vector<sym::Expr>{0, 3, -2});
  CHECK(known({1e3, 0.5}, DType::kBF16, DType::kI32) == std::vector<sym::Expr>{1000, 0});
  CHECK(known({0, -0.0, 0.25}, DType::kF64, DType::kBool) == std::vector<sym::Expr>{0, 0, 1});
  CHECK(!known({1.5}, DType::kF32, DType::kF16));
  CHECK(!s.b.known(cast(Term(s.b, s.input(DType::kF32)), DType::kI64, false)));
}

TEST_CASE("a cast to a type and back is removed where it loses nothing") {
  struct Row {
    DType from, over, to;
    bool folds;
  };
  const Row rows[] = {
      {DType::kF16, DType::kF32, DType::kF16, true},   {DType::kBF16, DType::kF32, DType::kF64, true},
      {DType::kI8, DType::kF16, DType::kI8, true},     {DType::kI32, DType::kF64, DType::kI32, true},
      {DType::kU8, DType::kI16, DType::kF32, true},    {DType::kBool, DType::kI32, DType::kBool, true},
      {DType::kBool, DType::kF32, DType::kI64, true},  {DType::kI4, DType::kBF16, DType::kF32, true},
      {DType::kF32, DType::kF16, DType::kF32, false},  {DType::kF64, DType::kF32, DType::kF64, false},
      {DType::kI32, DType::kF32, DType::kI32, false},  {DType::kI64, DType::kF64, DType::kI64, false},
      {DType::kI8, DType::kU16, DType::kI32, false},   {DType::kU8, DType::kI8, DType::kU8, false},
      {DType::kF32, DType::kI32, DType::kF32, false},  {DType::kF32, DType::kBool, DType::kF32, false},
      {DType::kF16, DType::kBF16, DType::kF32, false}, {DType::kBool, DType::kF8E8M0, DType::kF32, false},
      {DType::kI16, DType::kF16, DType::kI16, false},  {DType::kU8, DType::kU4, DType::kU8, false},
  };
  for (const Row& row : rows) {
    CAPTURE(name(row.from));
    CAPTURE(name(row.over));
    Small s;
    const ValueId x = s.input(row.from);
    const ValueId y = cast(s.b, cast(s.b, x, row.over), row.to);
    const graph::NodeId producer = s.g[y].producer;
    const bool folds = y == x || s.g[producer].inputs[0] == x;
    CHECK(folds == row.folds);
    if (row.folds && row.from == row.to) CHECK(y == x);
  }
}

TEST_CASE("a tensor cut in two pieces that change places is a view, but not along its last dim") {
  struct Row {
    int64_t dim;
    sym::Expr cut, first, second;  // x[cut:cut + first] before x[:second]
    bool folds;
  };
  const sym::Expr n = sym::var("n");
  const Row rows[] = {{0, 2, n - 2, 2, true},  {0, n - 1, 1, n - 1, true}, {0, 2, n - 3, 2, false},
                      {0, 1, n - 2, 2, false}, {1, 1, 2, 1, true},         {2, 1, 3, 1, false}};
  for (const Row& row : rows) {
    CAPTURE(row.dim);
    graph::Graph g;
    Builder b(g, shape_table());
    const ValueId x = b.input("x", {DType::kF32, {n, 3, 4}});
    const ValueId turned =
        concat(b, {slice(b, x, row.dim, row.cut, row.first), slice(b, x, row.dim, 0, row.second)}, row.dim);
    CHECK((g[g[turned].producer].kind == graph::OpKind::kPad) == row.folds);
  }
}

TEST_CASE("arithmetic without effect is removed, also with respect to the sign of zero") {
  Small s;
  const ValueId x = s.input(DType::kF32);
  CHECK(mul(s.b, x, 1.0) == x);
  CHECK(div(s.b, x, 1.0) == x);
  CHECK(sub(s.b, x, 0.0) == x);
  CHECK(add(s.b, x, -0.0) == x);
  CHECK(add(s.b, like(s.b, x, -0.0), x) == x);
  CHECK(add(s.b, x, 0.0) != x);   // -0.0 becomes 0.0
  CHECK(sub(s.b, x, -0.0) != x);  // likewise
  CHECK(sub(s.b, like(s.b, x, 0.0), x) != x);
  CHECK(mul(s.b, x, 0.0) != x);
  Small i;
  const ValueId n = i.input(DType::kI32);
  CHECK(add(i.b, n, 0.0) == n);
  CHECK(sub(i.b, n, 0.0) == n);
  CHECK(mul(i.b, n, 1.0) == n);
  // A one that broadcasts the result is not a neutral element.
  const ValueId wide = full(s.b, {2, 1, 1}, DType::kF32, 1.0);
  CHECK(mul(s.b, x, wide) != x);
}

TEST_CASE("views of views, and equal nodes") {
  Small s;
  const ValueId x = s.input(DType::kF32);
  const sym::Expr n = s.b.shape(x)[0];
  CHECK(permute(s.b, permute(s.b, x, {1, 0}), {1, 0}) == x);
  CHECK(reshape(s.b, reshape(s.b, x, {n * 3}), {n, 3}) == x);
  CHECK(exp(s.b, x) == exp(s.b, x));
  CHECK(permute(s.b, x, {1, 0}) != x);
}
