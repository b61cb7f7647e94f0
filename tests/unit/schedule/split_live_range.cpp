#include "compiler/schedule/memory/split_live_range.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/fusion/reduce_peak.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;
using sym::Expr;

namespace {

// A network with a skip connection. The result of its first half is in the second half of the columns of
// `both`, from `offset` on, and is read from `read` on. In between are GEMMs of `wide` columns.
struct Skip {
  int64_t offset = 64, read = 64, wide = 512;
  bool all = false;  // the first half is the whole buffer
};
Pieces network(const Skip& skip) {
  Pieces p("skip");
  const int64_t all = skip.all ? 64 : 128;
  const View x = p.input("x", {p.m, p.n, 64});
  const View both = p.temporary("both", {p.m, p.n, all});
  const auto product = [&](const View& rows, int64_t depth, int64_t columns) {
    const View out = p.temporary(cat("product", p.program.nests.size()), {p.m, p.n, columns});
    const View weights = p.weight(cat("w", p.program.nests.size()), {depth, columns}, 1);
    NestBuilder nest(p.program, "product");
    const std::vector<Expr> at = nest.dims(out.shape);
    nest.store(out, at, nest.reduce(Combine::kSum, {depth}, [&](const std::vector<Expr>& k) {
      return nest.load(rows, {at[0], at[1], k[0]}) * nest.load(weights, {k[0], at[2]});
    }));
    nest.finish();
    return out;
  };
  {
    NestBuilder nest(p.program, "early");
    const std::vector<Expr> at = nest.dims(x.shape);
    nest.store(both, {at[0], at[1], at[2] + skip.offset},
               max(nest.load(x, at), nest.constant(DType::kF32, 0)));
    nest.finish();
  }
  const View first = p.temporary("first", x.shape);
  {
    NestBuilder nest(p.program, "down");
    const std::vector<Expr> at = nest.dims(x.shape);
    const Value value = nest.load(both, {at[0], at[1], at[2] + skip.read});
    nest.store(first, at, value + value);
    nest.finish();
  }
  const View wide = product(first, 64, skip.wide);
  const View wider = product(wide, skip.wide, skip.wide);
  const View up = product(wider, skip.wide, 64);
  {
    NestBuilder nest(p.program, "late");
    const std::vector<Expr> at = nest.dims(x.shape);
    nest.store(both, at, nest.load(up, at));
    nest.finish();
  }
  p.output("y", product(both, all, 8));
  return p;
}

std::vector<EarlyPart> parts_of(const Program& program) {
  return early_parts(program, Flow(program, program.steps));
}

int64_t arena(const Pieces& pieces, Program program, int64_t rows) {
  plan_memory(program, InPlace::kSums);
  return *sym::evaluate(program.arena_bytes, [&](Expr var) { return var == pieces.m ? 1 : rows; });
}

}  // namespace

TEST_CASE("a part made long before the rest of a concatenation has its own buffer until then") {
  const Pieces pieces = network({});
  const Program& before = pieces.program;
  const auto parts = parts_of(before);
  REQUIRE(parts.size() == 1);
  CHECK(before[parts[0].of].name == "both");
  CHECK(parts[0].made == 0);
  CHECK(parts[0].needed == 5);
  CHECK(parts[0].first == std::vector<int64_t>{0, 0, 64});
  CHECK(parts[0].shape[2].is_const(64));

  Program after = before;
  std::vector<Decision> decisions;
  reduce_peak(after, &decisions);
  verify(after);
  CHECK(after.steps.size() == before.steps.size() + 1);
  REQUIRE(decisions.size() == 1);
  CHECK(decisions[0].producer == "early");
  CHECK(decisions[0].consumer == "late");
  CHECK(decisions[0].fused);  // the buffer was split in two
  CHECK(decisions[0].consumer_nodes.empty());
  CHECK(arena(pieces, before, 1000) == 1000 * 4 * (128 + 512 + 512));
  CHECK(arena(pieces, after, 1000) == 1000 * 4 * (64 + 512 + 512));
  plan_memory(after, InPlace::kSums);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {3, 2}})
    CHECK(same_results(before, after, {{pieces.n, n}, {pieces.m, m}}));
}

TEST_CASE("parts that stay where they are") {
  // Another step reads the rest before it is written.
  const auto early = parts_of(network({.read = 63}).program);
  CHECK(early.empty());
  // There is no rest.
  CHECK(parts_of(network({.offset = 0, .read = 0, .all = true}).program).empty());
  // No large buffer is live in between, so a copy would not pay off.
  Program small = network({.wide = 16}).program;
  REQUIRE(parts_of(small).size() == 1);
  std::vector<Decision> decisions;
  reduce_peak(small, &decisions);
  CHECK(std::none_of(decisions.begin(), decisions.end(),
                     [](const Decision& d) { return d.producer == "early"; }));
}
