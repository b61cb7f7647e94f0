#include "compiler/graph/gradient_marks.h"

#include "compiler/graph/text.h"
#include "compiler/graph/verify.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/normalization.h"
#include "tests/unit/passes/numbers.h"

using namespace stridec;
using graph::Builder;
using graph::Graph;
using graph::OpKind;
using ops::Term;

TEST_CASE("without marks a graph is the one that was written without them") {
  const auto text = [](bool marks) {
    Graph g;
    Builder b(g, ops::shape_table());
    const Term x(b, b.input("x", {DType::kF32, {3, 4}})), y(b, b.input("y", {DType::kF32, {3, 1}})),
        index(b, b.input("index", {DType::kI64, {2}}));
    if (marks) {
      const Term stopped = stop_gradient(stop_gradient(x));
      const auto out = ops::loop(b, 3, std::nullopt, {stopped.id()}, [&](const ops::LoopState& s) {
        return ops::LoopStep{std::nullopt, {stop_gradient(Term(b, s.carried[0]) + x).id()}, {}};
      });
      b.output("a", maximum(Term(b, out.carried[0]), y, ops::Ties::kFirst) + stop_gradient(y));
      b.output("b", stop_gradient(x));
      b.output("c", Term(b, b.add1(OpKind::kGather, {x.id(), index.id()},
                                   {{"dim", int64_t{0}}, {"no_gradient_at", int64_t{1}}})));
    } else {
      const auto out = ops::loop(b, 3, std::nullopt, {x.id()}, [&](const ops::LoopState& s) {
        return ops::LoopStep{std::nullopt, {(Term(b, s.carried[0]) + x).id()}, {}};
      });
      b.output("a", maximum(Term(b, out.carried[0]), y) + y);
      b.output("b", x);
      b.output("c", Term(b, b.add1(OpKind::kGather, {x.id(), index.id()}, {{"dim", int64_t{0}}})));
    }
    graph::drop_gradient_marks(g);
    graph::eliminate_dead_code(g);
    CHECK(graph::problems(g, ops::shape_table()).empty());
    return graph::to_string(g);
  };
  CHECK(text(true) == text(false));
}

TEST_CASE("softmax and relu leave no marks") {
  Graph g;
  Builder b(g, ops::shape_table());
  const Term x(b, b.input("x", {DType::kF32, {3, 4}}));
  b.output("y", relu(softmax(x, {1})));
  Graph after = g;
  graph::drop_gradient_marks(after);
  graph::eliminate_dead_code(after);
  CHECK(graph::to_string(g).find("stop_gradient") != std::string::npos);
  CHECK(graph::to_string(g).find("ties") != std::string::npos);
  CHECK(graph::to_string(after).find("stop_gradient") == std::string::npos);
  CHECK(graph::to_string(after).find("ties") == std::string::npos);
  CHECK(test::difference(g, after, {test::drawn(DType::kF32, {3, 4}, 1)}) == 0);
}
