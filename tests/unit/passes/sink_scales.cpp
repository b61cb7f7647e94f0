#include "compiler/passes/sink_scales.h"

#include <algorithm>
#include <functional>

#include "compiler/graph/verify.h"
#include "compiler/ops/composite/contraction.h"
#include "tests/unit/passes/numbers.h"

using namespace stridec;
using graph::Builder;
using graph::Graph;
using graph::OpKind;
using graph::Shape;
using ops::Term;
using test::drawn_constant;

namespace {

// x: [batch, 4, 6] and y: [batch, 5, 6]. Counts the operations on tensors before the last GEMM, through any
// number of views; results may change by rounding only.
struct Sunk {
  Graph before, after;
  int scales(const Graph& g) const {
    size_t product = 0;
    for (size_t i = 0; i < g.top.nodes.size(); ++i) {
      const OpKind kind = g[g.top.nodes[i]].kind;
      if (kind == OpKind::kDotGeneral || kind == OpKind::kConv || kind == OpKind::kConvTranspose) product = i;
    }
    return static_cast<int>(std::count_if(
        g.top.nodes.begin(), g.top.nodes.begin() + static_cast<std::ptrdiff_t>(product), [&](auto id) {
          return g[id].kind == OpKind::kMul || g[id].kind == OpKind::kDiv || g[id].kind == OpKind::kNeg;
        }));
  }
};

Sunk sunk(const std::function<Term(Builder&, Term, Term)>& build, DType dtype = DType::kF32) {
  Sunk s;
  Builder b(s.before, ops::shape_table());
  const sym::Expr batch = sym::var("batch");
  const Term x(b, b.input("x", {dtype, {batch, 4, 6}})), y(b, b.input("y", {dtype, {batch, 5, 6}}));
  b.output("z", build(b, x, y));
  graph::eliminate_dead_code(s.before);
  s.after = s.before;
  passes::sink_scales(s.after);
  CHECK(graph::problems(s.after, ops::shape_table()).empty());
  for (int64_t n : {0, 1, 3})
    CHECK(test::difference(s.before, s.after,
                           {test::drawn(dtype, {n, 4, 6}, 1), test::drawn(dtype, {n, 5, 6}, 2)}) <
          (dtype == DType::kF16 ? 1e-3 : 1e-5));
  return s;
}

Term scores(Term x, Term y) { return ops::matmul(x, ops::transpose(y, 1, 2)); }

}  // namespace

TEST_CASE("scales of both factors, through views, become one after the GEMM") {
  const Sunk s = sunk([](Builder&, Term x, Term y) { return scores(x * 0.5, -(y / 4.0)); });
  CHECK(s.scales(s.before) == 3);
  CHECK(s.scales(s.after) == 0);
  CHECK(test::count(s.after, OpKind::kMul, DType::kF32) == 1);

  const Sunk sliced = sunk([](Builder& b, Term x, Term y) {
    const Term part(b, ops::slice(b, (x * 3.0).id(), 1, 1, 2));
    return scores(part, y);
  });
  CHECK(sliced.scales(sliced.after) == 0);

  const Sunk wide = sunk([](Builder&, Term x, Term y) { return scores(x * 0.1, y * 0.1); }, DType::kF64);
  CHECK(wide.scales(wide.after) == 0);

  // Narrow types with a sum in f32, and scales that are computed.
  const Sunk narrow = sunk(
      [](Builder& b, Term x, Term y) {
        const Term size = Term(b, b.scalar(DType::kF32, 64.0)),
                   root = ops::sqrt(ops::divide_into(1.0, ops::sqrt(size)));
        return scores(x * cast(root, DType::kF16), y * 0.5);
      },
      DType::kF16);
  CHECK(narrow.scales(narrow.after) == 0);
}

TEST_CASE("convolutions, and consecutive GEMMs") {
  const Sunk s = sunk([](Builder& b, Term x, Term y) {
    const auto conv = [&](Term of, Shape after) {
      return Term(b, b.add1(OpKind::kConv, {of.id(), drawn_constant(b, DType::kF32, {4, 4, 3}, 3).id()},
                            {{"strides", std::vector<int64_t>{1}},
                             {"dilations", std::vector<int64_t>{1}},
                             {"before", Shape{1}},
                             {"after", std::move(after)},
                             {"groups", int64_t{1}}}));
    };
    return scores(conv(conv(x / 255.0, {1}) * 3.0, {1}) * 2.0, y);
  });
  CHECK(s.scales(s.before) == 3);
  CHECK(s.scales(s.after) <= 2);  // of the convolutions, before the last GEMM
}

TEST_CASE("left as it is") {
  const auto stays = [](const std::function<Term(Builder&, Term, Term)>& build, DType dtype = DType::kF32) {
    const Sunk s = sunk(build, dtype);
    CHECK(s.scales(s.after) == s.scales(s.before));
    CHECK(s.scales(s.before) > 0);
  };
  // The scaled value, or a view of it, has another reader.
  stays([](Builder& b, Term x, Term y) {
    const Term scaled = x * 2.0;
    b.output("scaled", scaled);
    return scores(scaled, y);
  });
  // Not a scalar.
  stays([](Builder& b, Term x, Term y) { return scores(x * drawn_constant(b, DType::kF32, {6}, 3), y); });
  stays([](Builder&, Term x, Term y) { return scores(ops::divide_into(2.0, x * x), y); });
  // Zero and infinity are not equivalent if the GEMM's result is infinite or zero.
  stays([](Builder&, Term x, Term y) { return scores(x * 0.0, y); });
}
