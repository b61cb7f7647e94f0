#include "compiler/schedule/algebra/delinearize.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;

TEST_CASE("a reduction over a flattened tensor runs over its dims") {
  Pieces p("flat");
  const View x = p.input("x", {p.n, 6, p.m, 8});
  const View flat = reshape(permute(x, {0, 2, 3, 1}), {p.n, p.m * 48}, p.program.facts);
  p.output("y", p.reduce_last(flat, Combine::kSum));
  Program after = p.program;
  schedule::delinearize(after);
  verify(after);
  CHECK(to_string(after).find("//") == std::string::npos);
  CHECK(to_string(p.program).find("//") != std::string::npos);
  schedule::plan_memory(after);
  for (int64_t m : {0, 1, 5}) CHECK(same_results(p.program, after, {{p.n, 2}, {p.m, m}}));
}

TEST_CASE("a weight that is read by the dims of another tensor has them") {
  Pieces p("flat weight");
  const View x = p.input("x", {p.n, 3, 4, 2});
  const View w = p.weight("w", {5, 24}, 1);
  p.output("y", p.matmul(reshape(x, {p.n, 24}, p.program.facts), permute(w, {1, 0})));
  Program after = p.program;
  schedule::delinearize(after);
  verify(after);
  const auto split = std::find_if(after.buffers.begin(), after.buffers.end(),
                                  [](const Buffer& b) { return b.storage == Storage::kParameter; });
  REQUIRE(split != after.buffers.end());
  CHECK(split->shape == std::vector<sym::Expr>{5, 3, 4, 2});
  CHECK(to_string(after).find("//") == std::string::npos);
  schedule::plan_memory(after);
  for (int64_t n : {0, 1, 3}) CHECK(same_results(p.program, after, {{p.n, n}}));
}

TEST_CASE("divisors that do not divide the extent leave the loop alone") {
  Pieces p("rest");
  const View x = p.input("x", {p.n});
  NestBuilder nest(p.program, "every_other");
  const View out = p.temporary("out", {p.n});
  const auto at = nest.dims({p.n});
  nest.store(out, at, nest.load(x, {sym::floordiv(at[0], 2)}));
  nest.finish();
  p.output("y", out);
  Program after = p.program;
  schedule::delinearize(after);
  CHECK(to_string(after) == to_string(p.program));
}

TEST_CASE("sums of columns of several matrices have a dim for the matrices") {
  Pieces p("columns");
  const View x = p.input("x", {3, p.n, 8});
  const View y = p.temporary("sums", {24});
  NestBuilder nest(p.program, "sums");
  const auto at = nest.dims({24});
  const Value sum = nest.reduce(Combine::kSum, {p.n}, [&](const std::vector<sym::Expr>& row) {
    return nest.load(x, {sym::floordiv(at[0], 8), row[0], sym::mod(at[0], 8)});
  });
  nest.store(y, at, sum);
  nest.finish();
  p.output("y", y);
  Program after = p.program;
  schedule::delinearize(after);
  verify(after);
  CHECK(after.nests[0].dims.size() == 2);
  CHECK(to_string(after).find("mod(") == std::string::npos);
  schedule::plan_memory(after);
  for (int64_t n : {0, 1, 5}) CHECK(same_results(p.program, after, {{p.n, n}}));
}
