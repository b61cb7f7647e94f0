#include "compiler/schedule/early_parts.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/lower_peaks.h"
#include "compiler/schedule/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;
using sym::Expr;

namespace {

// A network with a skip: what its first half leaves lies in the second half of `both`'s columns, from `offset` on, and is read
// from `read` on; between them are products of `wide` columns.
struct Skip {
  int64_t offset = 64, read = 64, wide = 512;
  bool all = false;  // the first half is all that there is
};
Program network(const Skip& skip) {
  Pieces p("skip");
  const Expr rows = p.n * p.m;
  const View x = p.input("x", {rows, 64});
  const View both = p.temporary("both", {rows, skip.all ? 64 : 128});
  {
    NestBuilder nest(p.program, "early");
    const std::vector<Expr> at = nest.dims({rows, 64});
    nest.store(both, {at[0], at[1] + skip.offset}, max(nest.load(x, at), nest.constant(DType::kF32, 0)));
    nest.finish();
  }
  const View first = p.temporary("first", {rows, 64});
  {
    NestBuilder nest(p.program, "down");
    const std::vector<Expr> at = nest.dims({rows, 64});
    const Value value = nest.load(both, {at[0], at[1] + skip.read});
    nest.store(first, at, value + value);
    nest.finish();
  }
  const View wide = p.matmul(first, p.weight("w1", {64, skip.wide}, 1));
  const View wider = p.matmul(wide, p.weight("w2", {skip.wide, skip.wide}, 2));
  const View up = p.matmul(wider, p.weight("w3", {skip.wide, 64}, 3));
  {
    NestBuilder nest(p.program, "late");
    const std::vector<Expr> at = nest.dims({rows, 64});
    nest.store(both, at, nest.load(up, at));
    nest.finish();
  }
  p.output("y", p.matmul(both, p.weight("w4", {skip.all ? 64 : 128, 8}, 4)));
  return p.program;
}

std::vector<EarlyPart> parts_of(const Program& program) {
  return early_parts(program, make_flow(program, program.steps));
}

int64_t arena(Program program, int64_t rows) {
  plan_memory(program, InPlace::kSums);
  return *sym::evaluate(program.arena_bytes, [&](Expr var) { return var == sym::var("m") ? 1 : rows; });
}

}  // namespace

TEST_CASE("what is made long before the rest of a concatenation lives by itself until then") {
  const Program before = network({});
  const auto parts = parts_of(before);
  REQUIRE(parts.size() == 1);
  CHECK(before[parts[0].of].name == "both");
  CHECK(parts[0].made == 0);
  CHECK(parts[0].needed == 5);
  CHECK(parts[0].first == std::vector<int64_t>{0, 64});
  CHECK(parts[0].shape[1].is_const(64));

  Program after = before;
  std::vector<Decision> decisions;
  lower_peaks(after, &decisions);
  verify(after);
  CHECK(after.steps.size() == before.steps.size() + 1);
  REQUIRE(decisions.size() == 1);
  CHECK(decisions[0].producer == "early");
  CHECK(decisions[0].consumer == "late");
  CHECK(!decisions[0].fused);
  CHECK(arena(before, 1000) == 1000 * 4 * (128 + 512 + 512));
  CHECK(arena(after, 1000) == 1000 * 4 * (64 + 512 + 512));
  plan_memory(after, InPlace::kSums);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {3, 2}})
    CHECK(same_results(before, after, {{sym::var("n"), n}, {sym::var("m"), m}}));
}

TEST_CASE("parts that stay where they are") {
  // Another one reads of the rest, before it is made.
  const auto early = parts_of(network({.read = 63}));
  CHECK(early.empty());
  // There is no rest.
  CHECK(parts_of(network({.offset = 0, .read = 0, .all = true})).empty());
  // Nothing large is alive in between, for which a copy would be worth its time.
  Program small = network({.wide = 16});
  REQUIRE(parts_of(small).size() == 1);
  const size_t steps = small.steps.size();
  lower_peaks(small);
  CHECK(small.steps.size() == steps);
}
