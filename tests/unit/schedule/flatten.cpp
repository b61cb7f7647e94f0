#include "compiler/schedule/algebra/flatten.h"

#include <doctest/doctest.h>

#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;

namespace {

// x squared (over all windows if `whole_before`), plus a mask for each of 8 windows, then a sum along the
// last dim: over all windows again (`whole_after`), or over images and windows.
Program masked(bool whole_before, bool whole_after) {
  Pieces p("windows");
  const View x = p.input("x", {p.n, 8, 5, 3}), mask = p.weight("mask", {8, 5, 1}, 3);
  const auto all = [&](const View& v) { return reshape(v, {8 * p.n, 5, 3}, p.program.facts); };
  View sum = x;
  if (whole_before)
    sum = reshape(p.map("square", {all(x)}, [](const auto& v) { return v[0] * v[0]; }), {p.n, 8, 5, 3},
                  p.program.facts);
  sum = p.map("add", {sum, mask}, [](const auto& v) { return v[0] + v[1]; });
  p.output("y", p.reduce_last(whole_after ? all(sum) : sum, Combine::kSum));
  return p.program;
}

}  // namespace

TEST_CASE("dims that were one before and after an addition are one in it") {
  Program before = masked(true, true), after = before;
  schedule::flatten(after);
  verify(after);
  Program named = after;
  for (Nest& nest : named.nests) renumber(nest);
  const std::string text = to_string(named);
  INFO(text);
  CHECK(text.find("nest 1 add (%i0<8*n, %i1<5, %i2<3)") != std::string::npos);
  CHECK(text.find("load mask[mod(%i0, 8), %i1, 0]") != std::string::npos);
  CHECK(text.find("load add[%i0, %i1, %i2]") != std::string::npos);
  schedule::plan_memory(after);
  for (int64_t n : {0, 1, 3}) CHECK(same_results(before, after, {{sym::var("n"), n}}));
}

TEST_CASE("dims that are separate before or after stay separate") {
  for (const bool again : {false, true}) {
    const Program before = masked(!again, again);
    Program after = before;
    schedule::flatten(after);
    CHECK(to_string(after) == to_string(before));
  }
}
