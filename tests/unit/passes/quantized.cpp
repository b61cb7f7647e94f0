#include "compiler/passes/quantized.h"

#include <functional>
#include <tuple>

#include "compiler/graph/verify.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/composite/recurrent.h"
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

// DequantizeLinear.
Term real(Term q, double scale, int zero) {
  Term wide = cast(q, DType::kI32);
  if (zero) wide = wide - zero;
  return cast(wide, DType::kF32) * scale;
}

Term per_channel(Term q, Term scale) { return cast(cast(q, DType::kI32), DType::kF32) * scale; }

Term conv(Term x, Term w, int64_t pad, int64_t groups = 1) {
  const std::vector<int64_t> ones(static_cast<size_t>(x.rank() - 2), 1);
  const Shape pads(ones.size(), pad);
  return Term(
      x.builder(),
      x.builder().add1(
          OpKind::kConv, {x.id(), w.id()},
          {{"strides", ones}, {"dilations", ones}, {"before", pads}, {"after", pads}, {"groups", groups}}));
}

struct Made {
  Graph before, after;
  std::vector<loop::HostTensor> inputs;
  double difference() const { return test::difference(before, after, inputs); }
  // Number of contractions whose first operand is of this dtype.
  int products(DType a) const {
    return test::count(after, OpKind::kDotGeneral, a) + test::count(after, OpKind::kConv, a);
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
    m.inputs.push_back(drawn(dtype, shape, static_cast<unsigned>(7 + terms.size())));
  }
  b.output("y", build(b, terms));
  graph::eliminate_dead_code(m.before);
  m.after = m.before;
  passes::contract_quantized(m.after);
  CHECK(graph::problems(m.after, ops::shape_table()).empty());
  return m;
}

}  // namespace

TEST_CASE("bytes times weights of bytes, with and without a zero point") {
  for (const DType data : {DType::kU8, DType::kI8}) {
    for (const int zero : {0, 100}) {
      const Made m = made({{data, {3, 20}}}, [&](Builder& b, const auto& in) {
        const Term scale = drawn_constant(b, DType::kF32, {7}, 3);
        return matmul(real(in[0], 0.02, zero), per_channel(drawn_constant(b, DType::kI8, {20, 7}, 2), scale));
      });
      CHECK(m.products(DType::kU8) == 1);
      CHECK(m.products(DType::kF32) == 0);
      CHECK(m.difference() < 1e-5);
    }
  }
}

TEST_CASE("padding of a convolution is by the zero point") {
  for (const auto& [groups, data, zero] : {std::tuple{1, DType::kU8, 77},
                                           {2, DType::kU8, 77},
                                           {1, DType::kI8, -5},
                                           {2, DType::kI8, 0},
                                           {1, DType::kI8, -128}}) {
    const Made m = made({{data, {2, 4, 5, 6}}}, [&](Builder& b, const auto& in) {
      const Term scale = drawn_constant(b, DType::kF32, {6, 1, 1, 1}, 3);
      return conv(real(in[0], 0.02, zero),
                  per_channel(drawn_constant(b, DType::kI8, {6, 4 / groups, 3, 3}, 2), scale), 1, groups);
    });
    CHECK(m.products(DType::kU8) == 1);
    CHECK(m.products(DType::kF32) == 0);
    CHECK(m.difference() < 1e-5);
  }
}

TEST_CASE("convolutions of groups are of bytes by constants, whatever their zero point") {
  for (const auto& [data, zero] : {std::pair(DType::kU8, 77), {DType::kI8, -5}, {DType::kU8, 0}})
    for (const auto& [weights, channels, inputs, point] : {std::tuple{DType::kI8, 4, 1, 0},
                                                           {DType::kU8, 4, 1, 90},   // 16 bits
                                                           {DType::kI8, 4, 1, -30},  //
                                                           {DType::kI8, 8, 1, 0},  // two results per channel
                                                           {DType::kU8, 12, 2, 255}}) {
      const Made m = made({{data, {2, 4, 5, 6}}}, [&](Builder& b, const auto& in) {
        return conv(real(in[0], 0.02, zero),
                    real(drawn_constant(b, weights, {channels, inputs, 3, 3}, 2), 0.1, point), 1, 4 / inputs);
      });
      CHECK(m.products(DType::kU8) == 1);
      CHECK(m.products(DType::kF32) == 0);
      CHECK(m.difference() < 1e-5);
    }
}

TEST_CASE(
    "a depthwise convolution by weights of the run, or of data with a zero point for each channel, stays one "
    "of floats") {
  const Made run =
      made({{DType::kU8, {2, 4, 5, 6}}, {DType::kI8, {4, 1, 3, 3}}},
           [&](Builder&, const auto& in) { return conv(real(in[0], 0.02, 77), real(in[1], 0.1, 0), 1, 4); });
  CHECK(run.products(DType::kF32) == 1);
  const Made several = made({{DType::kU8, {2, 4, 5, 6}}}, [&](Builder& b, const auto& in) {
    const Term zero = drawn_constant(b, DType::kU8, {1, 4, 1, 1}, 3);
    const Term x = cast(cast(in[0], DType::kI32) - cast(zero, DType::kI32), DType::kF32) * 0.02;
    return conv(x, real(drawn_constant(b, DType::kI8, {4, 1, 3, 3}, 2), 0.1, 0), 1, 4);
  });
  CHECK(several.products(DType::kF32) == 1);
}

TEST_CASE("weights of unsigned bytes, and two tensors of the run, are 16-bit differences") {
  const Made weights = made({{DType::kU8, {3, 20}}}, [&](Builder& b, const auto& in) {
    return matmul(real(in[0], 0.02, 9), real(drawn_constant(b, DType::kU8, {20, 7}, 2), 0.5, 90));
  });
  CHECK(weights.products(DType::kI16) == 1);
  CHECK(weights.difference() < 1e-5);
  const Made both = made({{DType::kU8, {2, 3, 20}}, {DType::kI8, {2, 7, 20}}}, [&](Builder&, const auto& in) {
    return matmul(real(in[0], 0.02, 9), permute(real(in[1], 0.5, -3), {0, 2, 1}));
  });
  CHECK(both.products(DType::kI16) == 1);
  CHECK(both.products(DType::kF32) == 0);
  CHECK(both.difference() < 1e-5);
}

TEST_CASE("integer products stay exact") {
  const Made m = made({{DType::kU8, {3, 20}}, {DType::kU8, {}}}, [&](Builder& b, const auto& in) {
    return matmul(cast(in[0], DType::kI32) - cast(in[1], DType::kI32),
                  cast(drawn_constant(b, DType::kI8, {20, 7}, 2), DType::kI32));
  });
  CHECK(m.products(DType::kU8) == 1);
  CHECK(m.difference() == 0);
}

TEST_CASE("a product stays one of floats where a scale runs along its sum") {
  const Made m = made({{DType::kU8, {3, 20}}}, [&](Builder& b, const auto& in) {
    const Term scale = drawn_constant(b, DType::kF32, {20, 1}, 3);
    return matmul(real(in[0], 0.02, 5), per_channel(drawn_constant(b, DType::kI8, {20, 7}, 2), scale));
  });
  CHECK(m.products(DType::kF32) == 1);
}

TEST_CASE(
    "a product stays one of floats where one factor is not a quantised number, or where 32 bits may be too "
    "few") {
  const Made mixed = made({{DType::kU8, {3, 20}}, {DType::kF32, {20, 4}}},
                          [&](Builder&, const auto& in) { return matmul(real(in[0], 0.02, 5), in[1]); });
  CHECK(mixed.products(DType::kF32) == 1);
  Graph g;
  Builder b(g, ops::shape_table());
  const sym::Expr k = sym::var("k");
  const Term x(b, b.input("x", {DType::kU8, {3, k}})), y(b, b.input("y", {DType::kU8, {k, 3}}));
  b.output("z", matmul(real(x, 1, 5), real(y, 1, 6)));
  graph::eliminate_dead_code(g);
  passes::contract_quantized(g);
  CHECK(test::count(g, OpKind::kDotGeneral, DType::kF32) == 1);
}

// DequantizeLinear of 8-bit floats with an explicit zero point of 0.
static Term narrow(Term q, Term scale) {
  const Term zero(q.builder(), q.builder().constant("", {q.dtype(), Shape{}}, graph::own({0x80})));
  return (cast(q, DType::kF32) - cast(zero, DType::kF32)) * scale;
}

TEST_CASE("8-bit floats are multiplied as they are, followed by one scale") {
  for (const DType data : {DType::kF8E4M3, DType::kF8E5M2})
    for (const DType weights : {DType::kF8E4M3, DType::kF8E5M2}) {
      const Made m = made({{data, {3, 20}}}, [&](Builder& b, const auto& in) {
        const Term scale = drawn_constant(b, DType::kF32, {7}, 3);
        return matmul(narrow(in[0], ops::number(b, DType::kF32, 0.02)),
                      narrow(drawn_constant(b, weights, {20, 7}, 2), scale));
      });
      CHECK(m.products(data) == 1);
      CHECK(m.products(DType::kF32) == 0);
      CHECK(m.difference() < 1e-6);
    }
  // Two non-constant tensors, and a convolution.
  const Made both =
      made({{DType::kF8E4M3, {2, 3, 20}}, {DType::kF8E4M3, {2, 7, 20}}, {DType::kF32, {1, 7, 1}}},
           [&](Builder& b, const auto& in) {
             return matmul(narrow(in[0], ops::number(b, DType::kF32, 0.02)),
                           permute(narrow(in[1], in[2]), {0, 2, 1}));
           });
  CHECK(both.products(DType::kF8E4M3) == 1);
  CHECK(both.difference() < 1e-6);
  const Made window = made({{DType::kF8E4M3, {2, 4, 5, 6}}}, [&](Builder& b, const auto& in) {
    const Term scale = drawn_constant(b, DType::kF32, {6, 1, 1, 1}, 3);
    return conv(narrow(in[0], ops::number(b, DType::kF32, 0.02)),
                narrow(drawn_constant(b, DType::kF8E4M3, {6, 4, 3, 3}, 2), scale), 1);
  });
  CHECK(window.products(DType::kF8E4M3) == 1);
  CHECK(window.difference() < 1e-6);
}

TEST_CASE("floats of 8 bits that a model in f16 rounds to f16 are multiplied as they are") {
  const Made m = made({{DType::kF8E4M3, {3, 20}}}, [&](Builder& b, const auto& in) {
    const Term scale = drawn_constant(b, DType::kF32, {7}, 3);
    return matmul(cast(narrow(in[0], ops::number(b, DType::kF32, 0.02)), DType::kF16),
                  cast(narrow(drawn_constant(b, DType::kF8E4M3, {20, 7}, 2), scale), DType::kF16));
  });
  CHECK(m.products(DType::kF8E4M3) == 1);
  CHECK(m.difference() < 2e-3);
}

TEST_CASE(
    "floats of 8 bits become floats where a scale runs along the sum, a zero point is none, or one factor is "
    "wide") {
  const auto one = [](Builder& b) { return ops::number(b, DType::kF32, 0.5); };
  const auto weights = [](Builder& b) { return drawn_constant(b, DType::kF8E4M3, {20, 7}, 2); };
  const std::function<Term(Builder&, const std::vector<Term>&)> cases[] = {
      [&](Builder& b, const auto& in) {
        return matmul(narrow(in[0], one(b)), narrow(weights(b), drawn_constant(b, DType::kF32, {20, 1}, 3)));
      },
      [&](Builder& b, const auto& in) {
        return matmul(narrow(in[0], one(b)), (cast(weights(b), DType::kF32) - 0.5) * one(b));
      },
      [&](Builder& b, const auto& in) {
        return matmul(narrow(in[0], one(b)), drawn_constant(b, DType::kF32, {20, 7}, 2));
      }};
  for (const auto& build : cases) {
    const Made m = made({{DType::kF8E4M3, {3, 20}}}, build);
    CHECK(m.products(DType::kF8E4M3) == 0);
    CHECK(m.difference() < 1e-6);
  }
}

TEST_CASE("recurrent layers with 8-bit weights multiply bytes, before the loop and in each of its steps") {
  for (const DType dtype : {DType::kI8, DType::kU8})
    for (const bool per_row : {false, true})
      for (const auto& [cell, gates, products] :
           {std::tuple(ops::Cell::kLstm, 4, 2), {ops::Cell::kGru, 3, 3}, {ops::Cell::kRnn, 1, 2}}) {
        const int64_t rows = gates * 5;
        const Made m = made({{DType::kF32, {4, 2, 8}}}, [&](Builder& b, const auto& in) {
          // The second of two directions, as a view of both.
          const auto direction = [&](int64_t depth, unsigned seed) {
            return squeeze(slice(drawn_constant(b, dtype, {2, rows, depth}, seed), 0, 1, 1), {0});
          };
          const ops::RecurrentScale scale{
              per_row ? drawn_constant(b, DType::kF32, {rows}, 5) * 0.01 : ops::number(b, DType::kF32, 0.01),
              ops::filled(b, per_row ? Shape(1, rows) : Shape{}, dtype, dtype == DType::kU8 ? 128 : 0)};
          const ops::RecurrentWeights weights{.w = direction(8, 2),
                                              .r = direction(5, 3),
                                              .bias = {},
                                              .peepholes = {},
                                              .w_scale = scale,
                                              .r_scale = scale};
          return ops::recurrent(cell, in[0], weights, {}, {}, {.activations = ops::default_activations(cell)})
              .y;
        });
        CHECK(m.products(DType::kU8) == products);
        CHECK(m.products(DType::kI16) == 0);
        CHECK(m.products(DType::kF32) == 0);
        CHECK(m.difference() < 1e-5);
      }
}
