#include "compiler/schedule/fusion/horizontal_fusion.h"

#include <doctest/doctest.h>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;

namespace {

// Number of launches after the pass; the result is compared with the original program.
int joined(const Pieces& p, std::vector<Decision>* decisions = nullptr) {
  Program after = p.program;
  fuse_horizontally(after, decisions);
  loop::eliminate_dead_code(after);
  verify(after);
  plan_memory(after);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {7, 7}}) {
    CAPTURE(to_string(after));
    CHECK(same_results(p.program, after, {{p.n, n}, {p.m, m}}));
  }
  int launches = 0;
  for_each_step(after.steps,
                [&](const Step& step) { launches += std::holds_alternative<Launch>(step.node); });
  return launches;
}

Value twice(const std::vector<Value>& v) { return v[0] + v[0]; }
Value bend(const std::vector<Value>& v) { return unary(ScalarOp::kTanh, v[0]); }

}  // namespace

TEST_CASE("small nests over the same dims are one, whether they pass something on or not") {
  Pieces p("siblings");
  const View x = p.input("x", {p.n, 16}), y = p.input("y", {p.n, 16});
  const View a = p.map("a", {x}, twice), b = p.map("b", {y}, bend);
  p.output("a", a);
  p.output("c", p.map("c", {a, b}, [](const std::vector<Value>& v) { return v[0] * v[1]; }));
  std::vector<Decision> decisions;
  CHECK(joined(p, &decisions) == 1);
  REQUIRE(decisions.size() == 1);
  CHECK(decisions[0].fused);
  CHECK(decisions[0].reason == "joined: 5 small nests over the same dims become one launch");
}

TEST_CASE("parts of a concatenation are siblings") {
  Pieces p("parts");
  const View x = p.input("x", {p.n, 16}), y = p.input("y", {p.n, 16});
  p.output("c", p.concat({p.map("a", {x}, twice), p.map("b", {y}, bend)}));
  CHECK(joined(p) == 2);  // the copy to the output has a dim of 32
}

TEST_CASE("nests with another one between them join where they may pass it") {
  for (const bool blocked : {false, true}) {
    Pieces p("between");
    const View x = p.input("x", {p.n, 16}), y = p.input("y", {p.n, 16});
    const View a = p.map("a", {x}, twice);
    const View sums = p.reduce_last(blocked ? a : y, Combine::kSum);
    p.output("s", p.map("b", {y, sums}, [](const std::vector<Value>& v) { return v[0] + v[1]; }));
    p.output("a", a);
    // Launches: a; the sum of a; b, which reads it, and its copy. Or all but the sum in one.
    CHECK(joined(p) == (blocked ? 3 : 2));
  }
}

TEST_CASE("what runs over other dims, is large, is looked up, or has loops keeps a launch of its own") {
  Pieces p("others");
  const View x = p.input("x", {p.n, 16});
  SUBCASE("other dims") {
    p.output("a", p.input("y", {p.n, 17}));
    p.output("b", x);
  }
  SUBCASE("dims that are only sometimes the same") {
    p.output("a", p.input("y", {p.m, 16}));
    p.output("b", x);
  }
  SUBCASE("large") {
    const View large = p.input("y", {p.n, 4096});
    p.output("a", large);
    p.output("b", p.input("z", {p.n, 4096}));
  }
  SUBCASE("looked up") {
    const View ids = p.input("ids", {p.n}, DType::kI64);
    p.program.outputs.clear();
    const View table = p.input("t", {9, 16});
    const View a = p.gather(table, ids), b = p.gather(table, ids);
    p.output("a", p.reduce_last(a, Combine::kSum));
    p.output("b", p.reduce_last(b, Combine::kMax));
    CHECK(joined(p) == 5);  // the copies of the sums are siblings
    return;
  }
  SUBCASE("loops") {
    const View a = p.temporary("a", {p.n, 1}), b = p.temporary("b", {p.n, 1});
    p.output("c", p.reduce_last(x, Combine::kSum));
    CHECK(joined(p) == 2);
    return;
  }
  CHECK(joined(p) == 2);
}
