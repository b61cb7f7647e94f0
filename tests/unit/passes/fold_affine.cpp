#include "compiler/passes/fold_affine.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/op_table.h"

using namespace stridec;
using graph::Builder;
using graph::Graph;
using graph::OpKind;
using graph::Shape;
using ops::Term;

namespace {

using Build = std::function<Term(Builder& b, Term x)>;

std::vector<uint8_t> numbers(DType dtype, int64_t count, int seed) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count * byte_size(dtype)));
  loop::HostTensor t{dtype, {count}, bytes};
  for (int64_t i = 0; i < count; ++i)
    loop::set_number(t, i, 0.25 + std::fmod(0.37 * static_cast<double>(i + 1) * (seed + 1), 1.5));
  return t.bytes;
}

Term constant(Builder& b, const std::vector<int64_t>& shape, int seed, DType dtype = DType::kF32) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  return Term(
      b, b.constant("", {dtype, Shape(shape.begin(), shape.end())}, graph::own(numbers(dtype, count, seed))));
}

Term conv(Term x, Term w, int64_t groups = 1, bool transposed = false) {
  const std::vector<int64_t> ones(static_cast<size_t>(x.rank() - 2), 1);
  const Shape one(ones.size(), 1), none(ones.size(), 0);
  graph::Attributes attributes = {
      {"strides", ones}, {"dilations", ones}, {"before", one}, {"after", one}, {"groups", groups}};
  if (transposed) attributes.set("output_extra", none);
  return Term(x.builder(), x.builder().add1(transposed ? OpKind::kConvTranspose : OpKind::kConv,
                                            {x.id(), w.id()}, attributes));
}

// Number of operations on tensors whose shape contains a symbol, that is, not on constants.
int in_run(const Graph& g, OpKind kind) {
  int n = 0;
  for (const graph::Node& node : g.nodes) {
    if (node.kind != kind) continue;
    for (sym::Expr dim : g[node.outputs[0]].type.shape)
      if (!dim.is_const()) {
        ++n;
        break;
      }
  }
  return n;
}

struct Folded {
  Graph before, after;
  bool changed() const { return graph::to_string(before) != graph::to_string(after); }
};

// x has `channels` after a symbolic batch dim; results may change by rounding only.
Folded fold(std::vector<int64_t> tail, const Build& build, DType dtype = DType::kF32) {
  Folded f;
  Builder b(f.before, ops::shape_table());
  Shape shape{sym::var("batch")};
  shape.insert(shape.end(), tail.begin(), tail.end());
  const Term x(b, b.input("x", {dtype, shape}));
  b.output("y", build(b, x));
  graph::eliminate_dead_code(f.before);
  f.after = f.before;
  passes::fold_affine(f.after);
  CHECK(graph::problems(f.after, ops::shape_table()).empty());

  for (int64_t batch : {0, 1, 3}) {
    std::vector<int64_t> sizes{batch};
    sizes.insert(sizes.end(), tail.begin(), tail.end());
    int64_t elements = 1;
    for (int64_t d : sizes) elements *= d;
    const loop::HostTensor input{dtype, sizes, numbers(dtype, elements, 7)};
    const auto want = loop::interpret(ops::lower(f.before), {input});
    const auto got = loop::interpret(ops::lower(f.after), {input});
    REQUIRE(got[0].shape == want[0].shape);
    for (int64_t i = 0; i < loop::element_count(want[0]); ++i) {
      const double a = loop::get_number(got[0], i), w = loop::get_number(want[0], i);
      CHECK(std::abs(a - w) <= 1e-5 * std::max(1.0, std::abs(w)));
    }
  }
  return f;
}

}  // namespace

TEST_CASE("batch normalisation goes into the weights of a convolution and one bias") {
  const Folded f = fold({4, 5, 6}, [](Builder& b, Term x) {
    const Term y = conv(x, constant(b, {6, 4, 3, 3}, 1)) + constant(b, {6, 1, 1}, 2);
    const Term factor = constant(b, {6, 1, 1}, 3) * ops::rsqrt(constant(b, {6, 1, 1}, 4) + 1e-5);
    return y * factor + (constant(b, {6, 1, 1}, 5) - constant(b, {6, 1, 1}, 6) * factor);
  });
  CHECK(in_run(f.before, OpKind::kMul) == 1);
  CHECK(in_run(f.before, OpKind::kAdd) == 2);
  CHECK(in_run(f.after, OpKind::kMul) == 0);
  CHECK(in_run(f.after, OpKind::kAdd) == 1);
}

TEST_CASE("grouped, depthwise and transposed convolutions, any rank") {
  for (int64_t groups : {1, 2, 4})
    for (bool transposed : {false, true}) {
      CAPTURE(groups);
      CAPTURE(transposed);
      const Folded f = fold({4, 5}, [&](Builder& b, Term x) {
        const std::vector<int64_t> shape =
            transposed ? std::vector<int64_t>{4, 3, 3} : std::vector<int64_t>{12, 4 / groups, 3};
        const int64_t out = transposed ? 3 * groups : 12;
        return (conv(x, constant(b, shape, 1), groups, transposed) - constant(b, {1, out, 1}, 2)) *
                   constant(b, {out, 1}, 3) +
               0.5;
      });
      CHECK(in_run(f.after, OpKind::kMul) == 0);
      CHECK(in_run(f.after, OpKind::kSub) == 0);
      CHECK(in_run(f.after, OpKind::kAdd) == 1);
    }
}

TEST_CASE("matrix products, with the weights on either side") {
  const Folded right = fold({5, 4}, [](Builder& b, Term x) {
    return -((constant(b, {3}, 1) - ops::matmul(x, constant(b, {4, 3}, 2)) / constant(b, {3}, 3)) * 2.0);
  });
  for (OpKind kind : {OpKind::kMul, OpKind::kDiv, OpKind::kSub, OpKind::kNeg})
    CHECK(in_run(right.after, kind) == 0);
  CHECK(in_run(right.after, OpKind::kAdd) == 1);

  const Folded left = fold({4}, [](Builder& b, Term x) {
    const Term y(b, ops::dot_general(b, constant(b, {3, 4}, 1), x, {{}, {}, {1}, {1}}));
    return y * constant(b, {3, 1}, 2);
  });
  CHECK(in_run(left.after, OpKind::kMul) == 0);

  // Weights per batch element, in another layout.
  const Folded batched = fold({2, 4}, [](Builder& b, Term x) {
    const Term y(b, ops::dot_general(b, x, constant(b, {4, 3, 2}, 1), {{1}, {2}, {2}, {0}}));
    return y * constant(b, {2, 1, 3}, 2);
  });
  CHECK(in_run(batched.after, OpKind::kMul) == 0);
}

TEST_CASE("one after the other, and inside of a loop") {
  const Folded chain = fold({4, 5}, [](Builder& b, Term x) {
    const Term y = conv(x, constant(b, {4, 4, 3}, 1)) * constant(b, {4, 1}, 2);
    return conv(y, constant(b, {4, 4, 3}, 3)) * constant(b, {4, 1}, 4) + 1.0;
  });
  CHECK(in_run(chain.after, OpKind::kMul) == 0);

  const Folded loop = fold({4}, [](Builder& b, Term x) {
    const auto result = ops::loop(b, 3, std::nullopt, {x.id()}, [&](const ops::LoopState& state) {
      const Term y = ops::matmul(Term(b, state.carried[0]), constant(b, {4, 4}, 1)) * 0.125 + 0.5;
      return ops::LoopStep{.condition = std::nullopt, .carried = {y.id()}, .stacked = {}};
    });
    return Term(b, result.carried[0]);
  });
  CHECK(in_run(loop.before, OpKind::kMul) == 1);
  CHECK(in_run(loop.after, OpKind::kMul) == 0);
}

TEST_CASE("left as it is") {
  const auto bn = [](Term y) { return y * constant(y.builder(), {4, 1}, 3) + 1.0; };
  // The convolution's result has another reader, or is a result of the graph.
  CHECK_FALSE(fold({4, 5}, [&](Builder& b, Term x) {
                const Term y = conv(x, constant(b, {4, 4, 3}, 1));
                return bn(y) + y;
              }).changed());
  // Weights that are not constant.
  CHECK_FALSE(
      fold({4, 5}, [&](Builder&, Term x) { return bn(ops::matmul(x, ops::transpose(x, 1, 2))); }).changed());
  // Weights expanded from a few values: scaling would materialise them.
  CHECK_FALSE(fold({4, 5}, [&](Builder& b, Term x) {
                return bn(conv(x, ops::expand(constant(b, {4, 1, 1}, 1), {4, 4, 3})));
              }).changed());
  // A factor along a dim other than channels.
  CHECK_FALSE(fold({4, 5}, [&](Builder& b, Term x) {
                return conv(x, constant(b, {4, 4, 3}, 1)) * constant(b, {5}, 2) + 1.0;
              }).changed());
  CHECK_FALSE(fold({5, 4}, [&](Builder& b, Term x) {
                return ops::matmul(x, constant(b, {4, 3}, 1)) * constant(b, {5, 1}, 2);
              }).changed());
  // The product is larger than the convolution's result.
  CHECK_FALSE(fold({4, 5}, [&](Builder& b, Term x) {
                return conv(x, constant(b, {1, 4, 3}, 1)) * constant(b, {4, 1}, 2);
              }).changed());
  // Division by the result, a factor that is not constant, and no factor.
  CHECK_FALSE(fold({4, 5}, [&](Builder& b, Term x) {
                return ops::divide_into(3.0, conv(x, constant(b, {4, 4, 3}, 1)));
              }).changed());
  CHECK_FALSE(
      fold({4, 5}, [&](Builder& b, Term x) { return conv(x, constant(b, {4, 4, 3}, 1)) * x; }).changed());
  CHECK_FALSE(
      fold({4, 5}, [&](Builder& b, Term x) { return conv(x, constant(b, {4, 4, 3}, 1)) + 1.0; }).changed());
  // Scaled weights would be infinite, and NaN where they are 0.
  {
    Graph g;
    Builder b(g, ops::shape_table());
    const Term x(b, b.input("x", {DType::kF32, {sym::var("batch"), 4, 5}}));
    b.output("y", conv(x, constant(b, {4, 4, 3}, 1)) / 0.0);
    graph::eliminate_dead_code(g);
    const std::string before = graph::to_string(g);
    passes::fold_affine(g);
    CHECK(graph::to_string(g) == before);
  }
  // Scaled weights would be rounded twice; integers would wrap differently.
  for (DType dtype : {DType::kF16, DType::kBF16})
    CHECK_FALSE(fold(
                    {4, 5},
                    [&](Builder& b, Term x) {
                      return conv(x, constant(b, {4, 4, 3}, 1, dtype)) * constant(b, {4, 1}, 2, dtype);
                    },
                    dtype)
                    .changed());
}

TEST_CASE("f64 keeps its precision") {
  const Folded f = fold(
      {4, 5},
      [](Builder& b, Term x) {
        return conv(x, constant(b, {4, 4, 3}, 1, DType::kF64)) * constant(b, {4, 1}, 2, DType::kF64);
      },
      DType::kF64);
  CHECK(in_run(f.after, OpKind::kMul) == 0);
}
