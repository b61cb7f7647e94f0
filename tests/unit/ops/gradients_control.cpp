// Gradients through if and loop, and through composites that are loops.
#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/recurrent.h"
#include "compiler/ops/copy_nodes.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/region.h"
#include "gradient_harness.h"

namespace stridec::ops::test {
namespace {

using graph::OpKind;
using Values = std::vector<ValueId>;

HostTensor flag(bool value) { return tensor(DType::kBool, {}, {value ? 1.0 : 0.0}); }

}  // namespace

TEST_CASE("gradients: if") {
  for (const bool value : {false, true}) {
    check_gradient("branches read different values", {flag(value), numbers({3}), numbers({3}, 2)},
                   [](Builder& b, const Values& in) {
                     const Term x(b, in[1]), y(b, in[2]), z = exp(x);
                     const Values out = if_else(
                         b, in[0], [&] { return Values{(z * y).id()}; },
                         [&] { return Values{apply(OpKind::kSin, y).id()}; });
                     return (Term(b, out[0]) * x).id();
                   },
                   {.symbolic = false});
    check_gradient("branches of different sizes", {flag(value), numbers({4, 3})},
                   [](Builder& b, const Values& in) {
                     const Term x(b, in[1]);
                     return if_else(
                         b, in[0], [&] { return Values{square(slice(x, 0, 0, 2)).id()}; },
                         [&] { return Values{exp(slice(x, 0, 1, 3)).id()}; })[0];
                   },
                   {.fixed = {1}, .second = false});
    check_gradient(
        "a branch that passes its input", {flag(value), numbers({3})}, [](Builder& b, const Values& in) {
          const Term x(b, in[1]);
          return if_else(b, in[0], [&] { return Values{x.id()}; }, [&] { return Values{square(x).id()}; })[0];
        });
    check_gradient(
        "an if in an if", {flag(value), flag(true), numbers({3})}, [](Builder& b, const Values& in) {
          const Term x(b, in[2]);
          return if_else(
              b, in[0],
              [&] {
                return if_else(
                    b, in[1], [&] { return Values{square(x).id()}; }, [&] { return Values{x.id()}; });
              },
              [&] { return Values{exp(x).id()}; })[0];
        });
  }
}

TEST_CASE("gradients: loops of a known length") {
  check_gradient("carried, captured, stacked", {numbers({3}), numbers({3}, 2)},
                 [](Builder& b, const Values& in) {
                   const Term w(b, in[1]);
                   const auto out = loop(b, 4, std::nullopt, {in[0]}, [&](const LoopState& s) {
                     const Term h(b, s.carried[0]);
                     return LoopStep{std::nullopt, {tanh(h * w).id()}, {square(h).id()}};
                   });
                   return (reduce_sum(Term(b, out.stacked[0]), {0}) + Term(b, out.carried[0]) * 3.0).id();
                 },
                 {.symbolic = false});
  check_gradient("several carried values, one of which stays",
                 {numbers({2}), numbers({2}, 2), numbers({2}, 3)},
                 [](Builder& b, const Values& in) {
                   const auto out = loop(b, 3, std::nullopt, in, [&](const LoopState& s) {
                     const Term p(b, s.carried[0]), q(b, s.carried[1]), k(b, s.carried[2]);
                     return LoopStep{std::nullopt, {(q * k).id(), (p + q).id(), k.id()}, {}};
                   });
                   return (Term(b, out.carried[0]) * Term(b, out.carried[1]) * Term(b, out.carried[2])).id();
                 },
                 {.symbolic = false});
  check_gradient("rows of an input, by the counter", {numbers({4, 2})}, [](Builder& b, const Values& in) {
    const Term x(b, in[0]), zero = filled(b, {x.dim(1)}, x.dtype(), 0);
    return loop(b, x.dim(0), std::nullopt, {zero.id()},
                [&](const LoopState& s) {
                  const Term row = squeeze(slice(x, 0, s.counter, 1), {0});
                  return LoopStep{std::nullopt, {(Term(b, s.carried[0]) * 0.5 + square(row)).id()}, {}};
                })
        .carried[0];
  });
  check_gradient(
      "a loop in a loop", {numbers({2})},
      [](Builder& b, const Values& in) {
        const Term w(b, in[0]);
        return loop(b, 2, std::nullopt, {in[0]},
                    [&](const LoopState& s) {
                      const auto inner = loop(b, 3, std::nullopt, {s.carried[0]}, [&](const LoopState& t) {
                        return LoopStep{
                            std::nullopt, {apply(OpKind::kSin, Term(b, t.carried[0]) * w).id()}, {}};
                      });
                      return LoopStep{std::nullopt, {inner.carried[0]}, {}};
                    })
            .carried[0];
      },
      {.second = false});
  check_gradient("no iterations", {numbers({2})}, [](Builder& b, const Values& in) {
    return loop(b, 0, std::nullopt, {in[0]},
                [&](const LoopState& s) { return LoopStep{std::nullopt, {ops::exp(b, s.carried[0])}, {}}; })
        .carried[0];
  });
}

TEST_CASE("gradients: a loop's products are kept, and those of its weights are one product after it") {
  const auto network = [](Builder& b, const Values& in) {
    const Term x(b, in[0]), w(b, in[1]), v(b, in[2]);  // [steps, batch, n], [n, n], [n, n]
    const auto product = [&](Term left, Term right) { return Term(b, matmul(b, left, right)); };
    return loop(b, x.dim(0), std::nullopt, {squeeze(slice(x, 0, 0, 1), {0}).id()},
                [&](const LoopState& s) {
                  const Term h(b, s.carried[0]);
                  const Term row = squeeze(slice(x, 0, s.counter, 1), {0});
                  // v is read twice: such gradients are summed up by the loop.
                  const Term next = tanh(product(h, w) + product(row, v)) + product(h, v) * 0.5;
                  return LoopStep{std::nullopt, {next.id()}, {}};
                })
        .carried[0];
  };
  check_gradient("products in a loop", {numbers({3, 2, 2}), numbers({2, 2}, 2), numbers({2, 2}, 3)}, network,
                 {.fixed = {0, 1, 2}, .symbolic = false});
  graph::Graph g;
  Builder b(g, shape_table());
  const ValueId x = b.input("x", {DType::kF32, {3, 2, 2}}), w = b.input("w", {DType::kF32, {2, 2}}),
                v = b.input("v", {DType::kF32, {2, 2}});
  const ValueId y = network(b, {x, w, v});
  const size_t before = g.nodes.size();
  const ValueId gradient = gradients(b, y, {w})[0];
  std::vector<bool> used(g.values.size(), false), inner(g.nodes.size(), false);
  const auto use = [&](const std::vector<ValueId>& values) {
    for (ValueId value : values) used[static_cast<size_t>(value.value)] = true;
  };
  use({gradient});
  size_t inside = 0, outside = 0;
  for (size_t n = g.nodes.size(); n-- > before;) {
    const graph::Node& node = g.nodes[n];
    if (std::ranges::none_of(node.outputs, [&](ValueId v) { return used[static_cast<size_t>(v.value)]; }))
      continue;
    use(node.inputs);
    for (const graph::Region& region : node.regions) {
      use(region.results);
      for (graph::NodeId id : region.nodes) inner[static_cast<size_t>(id.value)] = true;
    }
    if (node.kind == OpKind::kDotGeneral) ++(inner[n] ? inside : outside);
  }
  // In the backward loop: the gradient of h through both products that read it.
  CHECK(inside == 2);
  CHECK(outside == 1);
}

TEST_CASE("gradients: a region copied with other inputs") {
  check_gradient(
      "a loop, an if, a size of the run", {flag(true), numbers({2}), numbers({2}, 2), places({1}, {2})},
      [](Builder& b, const Values& in) {
        const Term w(b, in[2]);
        OpenRegion region(b, {b.type(in[1])});
        const ValueId unknown = b.parameters()[0];
        const auto out = loop(b, 3, std::nullopt, {unknown}, [&](const LoopState& s) {
          const Term x(b, s.carried[0]);
          const Values next =
              if_else(b, in[0], [&] { return Values{(x * w).id()}; }, [&] { return Values{x.id()}; });
          return LoopStep{std::nullopt, {ops::sin(b, next[0])}, {x.id()}};
        });
        const sym::Expr rows = b.elements_of(in[3], "rows", 0, 3).at(0);
        const Term some = slice(Term(b, out.stacked[0]), 0, 0, rows);
        const Term y = Term(b, out.carried[0]) + reduce_sum(some, {0}) + filled(b, {2}, DType::kF64, 3) * w;
        NodeCopier copier(b);
        copier.map(unknown, in[1]);
        copier.copy(region.close({}).nodes);
        return copier.at(y.id());
      },
      {.symbolic = false});
}

TEST_CASE("gradients: loops that stop by themselves") {
  check_gradient("doubles until 5", {tensor(DType::kF64, {2}, {0.4, 1.1}), numbers({2}, 2)},
                 [](Builder& b, const Values& in) {
                   const Term w(b, in[1]);
                   const auto below = [&](Term x) { return less(slice(x, 0, 0, 1), 5); };
                   const auto out =
                       loop(b, 10, reshape(below(Term(b, in[0])), {}).id(), {in[0]}, [&](const LoopState& s) {
                         const Term x = Term(b, s.carried[0]) * 2.0 + apply(OpKind::kSin, w) * 0.1;
                         return LoopStep{reshape(below(x), {}).id(), {x.id()}, {(x * w).id()}};
                       });
                   return (Term(b, out.carried[0]) + reduce_sum(Term(b, out.stacked[0]), {0})).id();
                 },
                 {.symbolic = false});
  graph::Graph g;
  Builder b(g, shape_table());
  const ValueId x = b.input("x", {DType::kF32, {2}}), go = b.input("go", {DType::kBool, {}});
  const auto forever = loop(b, kUnbounded * 2, go, {x}, [&](const LoopState& s) {
    return LoopStep{go, {ops::exp(b, s.carried[0])}, {}};
  });
  try {
    gradients(b, forever.carried[0], {x});
    FAIL_CHECK("rows without a bound");
  } catch (const Error& e) {
    CHECK(e.diagnostic.message ==
          "the gradient of loop is not supported: the number of iterations has no bound");
  }
}

TEST_CASE("gradients: recurrent networks") {
  struct Form {
    Cell cell;
    int64_t gates;
  };
  for (const auto& [cell, gates] : {Form{Cell::kRnn, 1}, Form{Cell::kGru, 3}, Form{Cell::kLstm, 4}})
    for (const bool reverse : {false, true}) {
      const int64_t hidden = 2;
      std::vector<HostTensor> inputs = {numbers({3, 2, 2}),
                                        sample_in(DType::kF64, {gates * hidden, 2}, -1, 1, 2),
                                        sample_in(DType::kF64, {gates * hidden, hidden}, -1, 1, 3),
                                        sample_in(DType::kF64, {2 * gates * hidden}, -1, 1, 4),
                                        sample_in(DType::kF64, {2, hidden}, -1, 1, 5)};
      if (reverse) inputs.push_back(places({2}, {3, 1}));
      check_gradient(cat("cell of ", gates, " gates", reverse ? ", from the end" : ""), inputs,
                     [&](Builder& b, const Values& in) {
                       const auto at = [&](size_t i) { return Term(b, in[i]); };
                       RecurrentState initial{.h = at(4), .c = std::nullopt};
                       if (cell == Cell::kLstm) initial.c = at(4) * 0.5;
                       std::optional<Term> lengths;
                       if (reverse) lengths = at(5);
                       const RecurrentResult out = recurrent(
                           cell, at(0), {.w = at(1), .r = at(2), .bias = at(3), .peepholes = std::nullopt},
                           lengths, initial, {.reverse = reverse, .activations = default_activations(cell)});
                       return (reduce_sum(out.y, {0, 1}) + square(squeeze(out.h, {0}))).id();
                     },
                     {.symbolic = false, .second = cell == Cell::kRnn && !reverse, .strided = false});
    }
}

}  // namespace stridec::ops::test
