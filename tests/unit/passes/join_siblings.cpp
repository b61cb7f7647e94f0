#include "compiler/passes/join_siblings.h"

#include <functional>
#include <optional>

#include "compiler/graph/verify.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/passes/autocast.h"
#include "tests/unit/passes/numbers.h"

using namespace stridec;
using graph::Builder;
using graph::Graph;
using graph::OpKind;
using graph::Shape;
using ops::Term;
using test::drawn_constant;

namespace {

constexpr DType kF32 = DType::kF32;

// x: [batch, 3, 4]. Returns the number of GEMMs before and after; results must be bit-identical, since sums
// stay the same.
std::pair<int, int> products(const std::function<void(Builder&, Term)>& build) {
  Graph before;
  Builder b(before, ops::shape_table());
  build(b, Term(b, b.input("x", {kF32, {sym::var("batch"), 3, 4}})));
  graph::eliminate_dead_code(before);
  Graph after = before;
  passes::join_siblings(after);
  CHECK(graph::problems(after, ops::shape_table()).empty());
  for (int64_t n : {0, 1, 3}) {
    const std::vector<loop::HostTensor> x{test::drawn(kF32, {n, 3, 4}, 1)};
    const auto want = loop::interpret(ops::lower(before), x), got = loop::interpret(ops::lower(after), x);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].bytes == want[i].bytes);
  }
  return {test::count(before, OpKind::kDotGeneral, kF32), test::count(after, OpKind::kDotGeneral, kF32)};
}

Term weights(Builder& b, int64_t columns, unsigned seed) {
  return drawn_constant(b, kF32, {4, columns}, seed);
}
Term heads(Term y, int64_t count) {
  Builder& b = y.builder();
  Shape shape = b.shape(y.id());
  const sym::Expr size = sym::floordiv(shape.back(), count);
  shape.back() = count;
  shape.push_back(size);
  return {b, ops::reshape(b, y.id(), shape)};
}

}  // namespace

TEST_CASE("queries, keys and values of any widths, some with a bias") {
  const auto counts = products([](Builder& b, Term x) {
    b.output("q", heads(ops::matmul(x, weights(b, 6, 1)) + drawn_constant(b, kF32, {6}, 4), 3));
    b.output("k", heads(drawn_constant(b, kF32, {1, 1, 2}, 5) + ops::matmul(x, weights(b, 2, 2)), 1));
    b.output("v", heads(ops::matmul(x, weights(b, 4, 3)), 2));
  });
  CHECK(counts == std::pair(3, 1));
}

TEST_CASE("transposed weights, and constants that are computed late") {
  const auto counts = products([](Builder& b, Term x) {
    const auto dot = [&](Term w) { return Term(b, ops::dot_general(b, x, w, {{}, {}, {2}, {1}})); };
    b.output("q", heads(dot(drawn_constant(b, kF32, {6, 4}, 1)), 3));
    b.output("k", heads(dot(drawn_constant(b, kF32, {2, 4}, 2) * drawn_constant(b, kF32, {2, 1}, 3)), 2));
  });
  CHECK(counts == std::pair(2, 1));
}

TEST_CASE("inside of a branch") {
  const auto counts = products([](Builder& b, Term x) {
    const Term yes(b, ops::gt(b, ops::reduce_sum(b, x, {}), b.scalar(kF32, 0)));
    const auto results = ops::if_else(
        b, yes,
        [&] {
          const Term q = heads(ops::matmul(x, weights(b, 6, 1)), 3),
                     k = heads(ops::matmul(x, weights(b, 6, 2)), 3);
          return std::vector{(q + k).id()};
        },
        [&] { return std::vector{heads(ops::matmul(x, weights(b, 6, 3)), 3).id()}; });
    b.output("y", results[0]);
  });
  CHECK(counts == std::pair(3, 2));
}

TEST_CASE("left as they are") {
  // The consumer is the GEMM's epilogue, or the result is an output.
  CHECK(products([](Builder& b, Term x) {
          b.output("gated",
                   ops::sigmoid(ops::matmul(x, weights(b, 6, 1))) * ops::matmul(x, weights(b, 6, 2)));
        }) == std::pair(2, 2));
  CHECK(products([](Builder& b, Term x) {
          b.output("q", ops::matmul(x, weights(b, 6, 1)));
          b.output("k", ops::matmul(x, weights(b, 6, 2)));
        }) == std::pair(2, 2));
  // Matrices without columns.
  CHECK(products([](Builder& b, Term x) {
          for (unsigned seed : {1u, 2u})
            b.output(seed == 1 ? "p" : "q",
                     ops::reshape(b,
                                  ops::dot_general(b, x, drawn_constant(b, kF32, {4, 3}, seed),
                                                   {{}, {}, {1, 2}, {1, 0}}),
                                  {sym::var("batch"), 1}));
        }) == std::pair(2, 2));
  // Matrices expanded from much smaller constants: the run reads those, and should not materialise the
  // matrices for a kernel.
  CHECK(products([](Builder& b, Term x) {
          for (unsigned seed : {1u, 2u}) {
            const Term bytes = drawn_constant(b, DType::kU8, {4, 6}, seed);
            const Term matrix = Term(b, ops::cast(b, bytes, kF32)) * 0.125;
            b.output(seed == 1 ? "q" : "k", heads(ops::matmul(x, matrix), 3));
          }
        }) == std::pair(2, 2));
  // GEMMs of different values, along different dims, and with matrices that are not constant.
  CHECK(products([](Builder& b, Term x) {
          b.output("q", heads(ops::matmul(x, weights(b, 6, 1)), 3));
          b.output("k", heads(ops::matmul(x + 1.0, weights(b, 6, 2)), 3));
          b.output(
              "l",
              heads(Term(b, ops::dot_general(b, x, drawn_constant(b, kF32, {3, 6}, 3), {{}, {}, {1}, {0}})),
                    3));
          b.output("x", heads(ops::matmul(x, ops::transpose(x, 1, 2)), 3));
        }) == std::pair(4, 4));
}
