#include "compiler/schedule/layout/loop_operands.h"

#include <doctest/doctest.h>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using sym::Expr;
using testing::Pieces;

namespace {

struct Matrix {
  bool turned = false;   // the loop reads w[column, k]
  bool written = false;  // the loop writes w
  bool moves = false;    // another part of w in each iteration
  int64_t rows = 3, columns = 64, depth = 40, steps = 5;
};

// h [rows, columns] becomes x * w + h again and again, with rows of w that the loop does not choose.
Program recurrent(const Matrix& m) {
  Pieces p("recurrent");
  const View x = p.input("x", {m.rows, m.depth});
  const View w = p.input(
      "w", m.turned ? std::vector<Expr>{m.columns, 2 * m.depth} : std::vector<Expr>{2 * m.depth, m.columns});
  const View matrix = m.written ? p.map("copy", {w}, [](const auto& v) { return v[0] + v[0]; }) : w;
  const View h = p.temporary("h", {m.rows, m.columns});
  NestBuilder start(p.program, "start");
  const auto s = start.dims({m.rows, m.columns});
  start.store(h, s, start.constant(DType::kF32, 0.5));
  start.finish();
  const Expr counter = sym::var("i");
  While loop{
      .counter = counter, .trip_count = m.steps, .condition = {}, .iterations = sym::var("ran"), .body = {}};
  NestBuilder product(p.program, "product");
  const auto at = product.dims({m.rows, m.columns});
  const Value sum = product.reduce(Combine::kSum, {m.depth}, [&](const std::vector<Expr>& k) {
    const Expr row = m.moves ? k[0] + sym::min(counter, m.depth) : k[0] + 3;
    return product.load(x, {at[0], k[0]}) *
           product.load(matrix, m.turned ? std::vector<Expr>{at[1], row} : std::vector<Expr>{row, at[1]});
  });
  product.store(h, at, sum + product.load(h, at) * product.constant(DType::kF32, 0.5));
  product.finish(&loop.body);
  if (m.written) {
    NestBuilder update(p.program, "update");
    const auto i = update.dims(matrix.shape);
    update.store(matrix, i, update.load(matrix, i) * update.constant(DType::kF32, 0.5));
    update.finish(&loop.body);
  }
  p.program.steps.push_back({std::move(loop)});
  p.output("y", h);
  return p.program;
}

// The number of steps that the pass adds; the results stay the same to the last bit.
size_t added(const Matrix& matrix) {
  const Program before = recurrent(matrix);
  verify(before);
  Program after = before;
  schedule::pack_loop_operands(after);
  CAPTURE(to_string(after));
  verify(after);
  const auto inputs = testing::random_inputs(before, {}, 1);
  CHECK(testing::close(interpret(before, inputs), interpret(after, inputs), 0));
  return after.steps.size() - before.steps.size();
}

}  // namespace

TEST_CASE("a matrix that a loop multiplies by is copied into panels before the loop") {
  CHECK(added({}) == 1);
  CHECK(added({.turned = true}) == 1);
  CHECK(added({.columns = 40}) == 1);  // panels of 8
}

TEST_CASE("a matrix is not copied where the loop changes or chooses it, or where a copy does not pay") {
  CHECK(added({.written = true}) == 0);
  CHECK(added({.moves = true}) == 0);
  CHECK(added({.columns = 36}) == 0);  // no whole panels
  CHECK(added({.columns = 32}) == 0);  // one panel
  CHECK(added({.rows = 100}) == 0);
  CHECK(added({.depth = 4}) == 0);
  CHECK(added({.steps = 2}) == 0);
}
