#include "compiler/passes/requantize.h"

#include <functional>

#include "compiler/graph/verify.h"
#include "compiler/ops/term.h"
#include "tests/unit/passes/numbers.h"

using namespace stridec;
using graph::Builder;
using graph::Graph;
using graph::OpKind;
using graph::Shape;
using ops::Term;
using test::drawn;
using test::drawn_constant;

namespace {

Term dequantized(Term q, double scale, int zero) {
  Term wide = cast(q, DType::kI32);
  if (zero) wide = wide - zero;
  return cast(wide, DType::kF32) * scale;
}

Term quantized(Term x, double scale, int zero, DType to = DType::kU8) {
  Term rounded = apply(OpKind::kRound, x / scale);
  if (zero) rounded = rounded + zero;
  return cast(rounded, to, true);
}

struct Made {
  Graph before, after;
  std::vector<loop::HostTensor> inputs;
  int divisions() const { return test::count(after, OpKind::kDiv, DType::kF32); }
  size_t nodes() const { return after.top.nodes.size(); }
  // The largest difference in quantisation steps of the result.
  double steps() const {
    const auto a = loop::interpret(ops::lower(before), inputs),
               b = loop::interpret(ops::lower(after), inputs);
    REQUIRE(a[0].shape == b[0].shape);
    REQUIRE(a[0].dtype == b[0].dtype);
    double worst = 0;
    for (int64_t i = 0; i < loop::element_count(a[0]); ++i)
      worst = std::max(worst, std::abs(loop::get_number(a[0], i) - loop::get_number(b[0], i)));
    return worst;
  }
};

Made made(const std::vector<std::pair<DType, std::vector<int64_t>>>& inputs,
          const std::function<Term(Builder&, const std::vector<Term>&)>& build) {
  Made m;
  Builder b(m.before, ops::shape_table());
  std::vector<Term> terms;
  for (const auto& [dtype, shape] : inputs) {
    terms.push_back(
        {b, b.input("x" + std::to_string(terms.size()), {dtype, Shape(shape.begin(), shape.end())})});
    m.inputs.push_back(drawn(dtype, shape, static_cast<unsigned>(11 + terms.size())));
  }
  b.output("y", build(b, terms));
  graph::eliminate_dead_code(m.before);
  m.after = m.before;
  passes::requantize(m.after);
  CHECK(graph::problems(m.after, ops::shape_table()).empty());
  return m;
}

}  // namespace

TEST_CASE("a scaled sum that is quantised is not divided") {
  for (const DType to : {DType::kU8, DType::kI8}) {
    const Made m = made({{DType::kI32, {3, 20}}}, [&](Builder& b, const auto& in) {
      const Term scale = drawn_constant(b, DType::kF32, {20}, 3),
                 bias = drawn_constant(b, DType::kF32, {20}, 4);
      return quantized(cast(in[0], DType::kF32) * scale + bias, 0.9, to == DType::kU8 ? 130 : -3, to);
    });
    CHECK(m.divisions() == 0);
    CHECK(test::count(m.after, OpKind::kMul, DType::kF32) == 2);  // of constants
    CHECK(test::count(m.after, OpKind::kFma, DType::kF32) == 1);
    CHECK(m.steps() <= 1);
  }
}

TEST_CASE("two dequantised tensors are added with a factor each") {
  const Made m = made({{DType::kU8, {3, 7}}, {DType::kI8, {3, 7}}}, [&](Builder&, const auto& in) {
    return quantized(dequantized(in[0], 0.02, 130) - dequantized(in[1], 0.5, 0), 0.6, 100);
  });
  CHECK(m.divisions() == 0);
  CHECK(test::count(m.after, OpKind::kMul, DType::kF32) == 0);
  CHECK(test::count(m.after, OpKind::kFma, DType::kF32) == 2);
  CHECK(m.steps() <= 1);
}

TEST_CASE("a zero point is taken off again where it was put to a number for this sum alone") {
  for (const bool alone : {true, false}) {
    const Made m = made({{DType::kI32, {3, 7}}, {DType::kU8, {3, 7}}}, [&](Builder& b, const auto& in) {
      const Term q = quantized(cast(in[0], DType::kF32) * 0.01, 0.9, 130);
      if (!alone) b.output("q", q);
      return quantized(dequantized(q, 0.9, 130) + dequantized(in[1], 0.5, 4), 0.6, 0);
    });
    CHECK(m.divisions() == 0);
    CHECK(test::count(m.after, OpKind::kSub, DType::kF32) == (alone ? 1 : 0));
    CHECK(m.steps() <= 1);
  }
}

TEST_CASE("what is quantised as it was is itself, moved, gathered or pooled too") {
  const Made same = made({{DType::kU8, {4, 6}}}, [&](Builder&, const auto& in) {
    return quantized(dequantized(in[0], 0.3, 77), 0.3, 77);
  });
  CHECK(same.nodes() == 0);
  CHECK(same.steps() == 0);
  const Made moved = made({{DType::kI8, {4, 6}}}, [&](Builder&, const auto& in) {
    const Term x = reshape(permute(dequantized(in[0], 0.3, -7), {1, 0}), {3, 8});
    return quantized(x, 0.3, -7, DType::kI8);
  });
  CHECK(moved.nodes() == 2);
  CHECK(moved.steps() == 0);
  const Made pooled = made({{DType::kU8, {1, 2, 5, 6}}}, [&](Builder& b, const auto& in) {
    const Shape one{1, 1};
    const Term most(b, b.add1(OpKind::kReduceWindow, {dequantized(in[0], 0.3, 77).id()},
                              {{"kind", std::string("max")},
                               {"window", Shape{3, 3}},
                               {"strides", std::vector<int64_t>{2, 2}},
                               {"dilations", std::vector<int64_t>{1, 1}},
                               {"before", one},
                               {"after", one}}));
    return quantized(most, 0.3, 77);
  });
  CHECK(test::count(pooled.after, OpKind::kReduceWindow, DType::kU8) == 1);
  CHECK(pooled.nodes() == 1);
  CHECK(pooled.steps() == 0);
}

TEST_CASE("floats are divided as they are, and so is what a factor of both signs turns around") {
  const Made floats = made({{DType::kF32, {5, 9}}, {DType::kU8, {5, 9}}}, [&](Builder&, const auto& in) {
    return quantized(in[0] + dequantized(in[1], 0.1, 3), 0.02, 100);
  });
  CHECK(floats.divisions() == 1);
  CHECK(floats.steps() == 0);
  const Made negative = made({{DType::kI8, {1, 1, 4, 4}}}, [&](Builder& b, const auto& in) {
    const Shape none{0, 0};
    const Term most(b, b.add1(OpKind::kReduceWindow, {dequantized(in[0], -0.3, 0).id()},
                              {{"kind", std::string("max")},
                               {"window", Shape{2, 2}},
                               {"strides", std::vector<int64_t>{2, 2}},
                               {"dilations", std::vector<int64_t>{1, 1}},
                               {"before", none},
                               {"after", none}}));
    return quantized(most, 0.3, 0, DType::kI8);
  });
  CHECK(test::count(negative.after, OpKind::kReduceWindow, DType::kF32) == 1);
  CHECK(negative.steps() == 0);
}

TEST_CASE("another scale or zero point is another number") {
  const Made scale = made({{DType::kU8, {40}}}, [&](Builder&, const auto& in) {
    return quantized(dequantized(in[0], 0.3, 77), 0.4, 77);
  });
  CHECK(scale.divisions() == 0);
  CHECK(scale.steps() <= 1);
  const Made zero = made({{DType::kU8, {40}}}, [&](Builder&, const auto& in) {
    return quantized(dequantized(in[0], 0.3, 77), 0.3, 78);
  });
  CHECK(zero.nodes() > 0);
  CHECK(zero.steps() == 0);
}
