#include "compiler/passes/byte_tables.h"

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
  return cast(cast(q, DType::kI32) - zero, DType::kF32) * scale;
}
Term quantized(Term x, double scale, int zero, DType to) {
  return cast(apply(OpKind::kRound, x / scale) + zero, to, true);
}

struct Made {
  Graph before, after;
  std::vector<loop::HostTensor> inputs;
  int look_ups() const {
    return test::count(after, OpKind::kGather, DType::kU8) + test::count(after, OpKind::kGather, DType::kI8);
  }
  int errors() const { return test::count(after, OpKind::kErf, DType::kF32); }
  double difference() const { return test::difference(before, after, inputs); }
};

Made made(DType dtype, const std::function<Term(Builder&, Term)>& build) {
  Made m;
  Builder b(m.before, ops::shape_table());
  const Term x(b, b.input("x", {dtype, Shape{6, 100}}));
  m.inputs.push_back(drawn(dtype, {6, 100}, 5));
  b.output("y", build(b, x));
  graph::eliminate_dead_code(m.before);
  m.after = m.before;
  passes::make_byte_tables(m.after);
  CHECK(graph::problems(m.after, ops::shape_table()).empty());
  return m;
}

}  // namespace

TEST_CASE("an activation between bytes, with roundings on the way, is one look-up") {
  for (const DType from : {DType::kU8, DType::kI8})
    for (const DType to : {DType::kU8, DType::kI8}) {
      const Made m = made(from, [&](Builder& b, Term q) {
        const Term x = dequantized(q, 0.03, 11);
        const Term half = dequantized(quantized(x / 1.41, 0.02, 90, DType::kU8), 0.02, 90);
        const Term e = quantized(apply(OpKind::kErf, half), 0.01, -3, DType::kI8);
        const Term one(
            b, b.constant("", {DType::kF32, Shape{1, 1}}, graph::own(drawn(DType::kF32, {1, 1}, 3).bytes)));
        return quantized((dequantized(e, 0.01, -3) + one) * x, 0.04, 7, to);
      });
      CHECK(m.look_ups() == 1);
      CHECK(m.difference() == 0);
    }
}

TEST_CASE("a function of two tensors, of channels, or of few operations is computed") {
  const Made cheap = made(
      DType::kU8, [](Builder&, Term q) { return quantized(dequantized(q, 0.03, 11), 0.02, 9, DType::kU8); });
  CHECK(cheap.look_ups() == 0);
  const Made channels = made(DType::kU8, [](Builder& b, Term q) {
    const Term scale = drawn_constant(b, DType::kF32, {100}, 2);
    return quantized(apply(OpKind::kErf, dequantized(q, 0.03, 11) * scale), 0.02, 9, DType::kU8);
  });
  CHECK(channels.look_ups() == 0);
  const Made moved = made(DType::kU8, [](Builder&, Term q) {
    const Term e = apply(OpKind::kErf, dequantized(q, 0.03, 11));
    return quantized(apply(OpKind::kErf, e + flip(e, {0})), 0.02, 9, DType::kU8);
  });
  CHECK(moved.look_ups() == 0);
  CHECK(moved.errors() == 2);
}

TEST_CASE("a table serves what floats are made of it, too") {
  const Made m = made(DType::kI8, [](Builder&, Term q) {
    const Term x = quantized(apply(OpKind::kErf, dequantized(q, 0.03, 11)), 0.02, 9, DType::kU8);
    return dequantized(x, 0.02, 9);
  });
  CHECK(m.look_ups() == 1);
  CHECK(m.difference() == 0);
}
