#include "compiler/passes/concat_pads.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "compiler/base/text.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/verify.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/term.h"

using namespace stridec;
using graph::Builder;
using graph::Graph;
using graph::OpKind;
using ops::Term;

namespace {

int count(const Graph& g, OpKind kind) {
  return static_cast<int>(
      std::count_if(g.top.nodes.begin(), g.top.nodes.end(), [&](auto id) { return g[id].kind == kind; }));
}

// Of x: [batch, 2], y: [batch, 3] and z: [batch, 1]. Returns the numbers of concatenations and of pads.
std::pair<int, int> after(const std::function<std::vector<Term>(Term x, Term y, Term z)>& build) {
  Graph g;
  {
    Builder b(g, ops::shape_table());
    const sym::Expr batch = sym::var("batch");
    std::vector<Term> in;
    for (const int64_t size : {2, 3, 1})
      in.emplace_back(b,
                      b.input(std::string(1, static_cast<char>('a' + size)), {DType::kF32, {batch, size}}));
    for (const Term& out : build(in[0], in[1], in[2])) b.output(cat("out", out.id().value), out.id());
  }
  passes::concat_pads(g);
  graph::verify(g, ops::shape_table(), "test");
  return {count(g, OpKind::kConcat), count(g, OpKind::kPad)};
}

Term padded(Term x, int64_t before, int64_t after) { return ops::pad(x, {0, before}, {0, after}, 0); }

}  // namespace

TEST_CASE("sums of padded pieces become concatenations") {
  using Counts = std::pair<int, int>;
  CHECK(after([](Term x, Term y, Term) { return std::vector{padded(x, 0, 3) + padded(y, 2, 0)}; }) ==
        Counts{1, 0});
  // In any order and grouping.
  CHECK(after([](Term x, Term y, Term z) {
          return std::vector{padded(z, 5, 0) + (padded(y, 2, 1) + padded(x, 0, 4))};
        }) == Counts{1, 0});
  // A gap, an overlap, another fill, two dims, and a term that is not a piece.
  CHECK(after([](Term x, Term y, Term) { return std::vector{padded(x, 0, 4) + padded(y, 3, 0)}; }).first ==
        0);
  CHECK(after([](Term x, Term y, Term) { return std::vector{padded(x, 0, 2) + padded(y, 1, 0)}; }).first ==
        0);
  CHECK(after([](Term x, Term y, Term) {
          return std::vector{ops::pad(x, {0, 0}, {0, 3}, 1) + padded(y, 2, 0)};
        }).first == 0);
  CHECK(after([](Term x, Term y, Term) {
          return std::vector{ops::pad(x, {0, 0}, {1, 3}, 0) + ops::pad(y, {0, 2}, {1, 0}, 0)};
        }).first == 0);
  CHECK(after([](Term x, Term y, Term) {
          const Term whole = padded(x, 0, 3);
          return std::vector{whole + padded(y, 2, 0), whole};
        }).first == 0);
}
