#include "compiler/schedule/fusion/rematerialize.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/base/text.h"
#include "compiler/loop/build.h"
#include "compiler/loop/index_length.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;

namespace {

// Rows of exponentials with their sums, and a step that reads both. `size`: of a row.
std::string softmax_text(int64_t size, std::string_view between = "",
                         std::string_view value = "%2 : f32 = sub %7 %0",
                         std::string_view reader = "mul %0 %2") {
  return cat(R"(program rows
  symbol n = input 0 dim 0 in 1..4096
  input x f32 [n, )",
             size, R"(] ordinal 0
  output y f32 [n, )",
             size, R"(] ordinal 0
  arena t f32 [n, )",
             size, R"(]
  arena m f32 [n]
  arena s f32 [n]
  arena e f32 [n, )",
             size, R"(]
  inputs (x)
  outputs (y)
  steps
    nest 0 made (%i0<n, %i1<)",
             size, R"()
      %0 : f32 = load x[%i0, %i1]
      %1 : f32 = mul %0 %0
      store t[%i0, %i1] %1
    nest 1 exps (%i0<n)
      %0 : f32 = reduce max (%r1<)",
             size, R"()
        %1 : f32 = load t[%i0, %r1]
        yield %1
      store m[%i0] %0
      for (%j2<)",
             size, R"()
        %7 : f32 = load t[%i0, %j2]
        )",
             value, R"(
        %3 : f32 = exp %2
        store e[%i0, %j2] %3
      %4 : f32 = reduce sum (%r3<)",
             size, R"()
        %5 : f32 = load e[%i0, %r3]
        yield %5
      store s[%i0] %4
)",
             between, R"(    nest )", between.empty() ? 2 : 3, R"( back (%i0<n, %i1<)", size, R"()
      %0 : f32 = load e[%i0, %i1]
      %1 : f32 = load s[%i0]
      %2 : f32 = div %1 %1
      %3 : f32 = )",
             reader, R"(
      store y[%i0, %i1] %3
)");
}

Program rematerialized(const Program& before) {
  Program after = before;
  rematerialize(after, nullptr);
  loop::eliminate_dead_code(after);
  plan_memory(after);
  verify(after);
  CHECK(same_results(before, after, {{sym::var("n"), 3}}));
  return after;
}

bool keeps(const Program& after, std::string_view name) {
  for (const Buffer& buffer : after.buffers)
    if (buffer.name == name && buffer.storage == Storage::kArena) return true;
  return false;
}

bool keeps_exponentials(const std::string& text) { return keeps(rematerialized(parse_program(text)), "e"); }

// A product whose epilogue stores g and `value` of g, z and m, as t, and a nest that reads t.
std::string epilogue_text(std::string_view reader, std::string_view value = "mul %3 %6") {
  return cat(R"(program epilogue
  symbol n = input 0 dim 0 in 1..4096
  input x f32 [n, 3] ordinal 0
  input w f32 [3, 50000] ordinal 1
  input z f32 [n, 50000] ordinal 2
  input m f32 [50000] ordinal 3
  output y f32 [50000] ordinal 0
  output u f32 [n, 50000] ordinal 1
  arena g f32 [n, 50000]
  arena t f32 [n, 50000]
  inputs (x, w, z, m)
  outputs (y, u)
  steps
    nest 0 product (%i0<n, %i1<50000)
      %3 : f32 = reduce sum (%k<3)
        %0 : f32 = load x[%i0, %k]
        %1 : f32 = load w[%k, %i1]
        %2 : f32 = mul %0 %1
        yield %2
      store g[%i0, %i1] %3
      %4 : f32 = load z[%i0, %i1]
      %5 : f32 = load m[%i1]
      %6 : f32 = sub %4 %5
      %7 : f32 = )",
             value, R"(
      store t[%i0, %i1] %7
    nest 1 sum (%i0<50000)
      %0 : f32 = reduce sum (%i1<n)
        %1 : f32 = load g[%i1, %i0]
        yield %1
      store y[%i0] %0
    nest 2 reader )",
             reader);
}

constexpr std::string_view kRead = R"((%i0<n, %i1<50000)
      %0 : f32 = load t[%i0, %i1]
      %1 : f32 = load g[%i0, %i1]
      %2 : f32 = add %0 %1
      store u[%i0, %i1] %2
)";
// The epilogue of another product.
constexpr std::string_view kEpilogue = R"((%i0<n, %i1<50000)
      %3 : f32 = reduce sum (%k<3)
        %0 : f32 = load x[%i0, %k]
        %1 : f32 = load w[%k, %i1]
        %2 : f32 = mul %0 %1
        yield %2
      %4 : f32 = load t[%i0, %i1]
      %5 : f32 = mul %3 %4
      store u[%i0, %i1] %5
)";
// A factor of another product.
constexpr std::string_view kFactor = R"((%i0<n, %i1<50000)
      %3 : f32 = reduce sum (%k<50000)
        %0 : f32 = load t[%i0, %k]
        %1 : f32 = load z[%k, %i1] if %k < n else 0
        %2 : f32 = mul %0 %1
        yield %2
      store u[%i0, %i1] %3
)";

}  // namespace

TEST_CASE("a reader computes exponentials from what is in memory, and their row stays local") {
  const Program after = rematerialized(parse_program(softmax_text(50000)));
  CHECK(to_string(after, after[std::get<Launch>(after.steps[2].node).nest]) == R"(nest back (%i0<n, %i1<50000)
  %4 : f32 = load t[%i0, %i1]
  %5 : f32 = load m[%i0]
  %6 : f32 = sub %4 %5
  %7 : f32 = exp %6
  %1 : f32 = load s[%i0]
  %2 : f32 = div %1 %1
  %3 : f32 = mul %7 %2
  store y[%i0, %i1] %3
)");
  CHECK(!keeps_exponentials(softmax_text(50000)));
}

TEST_CASE("what is small, costly, changed or computed from more stays in memory") {
  CHECK(keeps_exponentials(softmax_text(64)));  // it stays in a cache
  const std::string_view change = R"(    nest 2 change (%i0<n, %i1<50000)
      %0 : f32 = load x[%i0, %i1]
      store t[%i0, %i1] %0
)";
  CHECK(keeps_exponentials(softmax_text(50000, change)));
  CHECK(keeps_exponentials(softmax_text(50000, "", "%6 : f32 = log %7\n        %2 : f32 = sub %6 %0")));
  CHECK(keeps_exponentials(
      softmax_text(50000, "", "%6 : f32 = load x[%i0, %j2]\n        %2 : f32 = sub %6 %7")));
}

TEST_CASE("what a contraction's epilogue computes is computed again from what it stores too") {
  CHECK(!keeps(rematerialized(parse_program(epilogue_text(kRead))), "t"));
  CHECK(!keeps(rematerialized(parse_program(epilogue_text(kEpilogue))), "t"));
  // An error function costs less than storing and loading its result, and more than storing it alone.
  CHECK(!keeps(rematerialized(parse_program(epilogue_text(kRead, "erf %3"))), "t"));
  CHECK(keeps(rematerialized(parse_program(epilogue_text(kEpilogue, "erf %6"))), "t"));
}

TEST_CASE("what a contraction loads many times stays in memory") {
  Program program = parse_program(epilogue_text(kFactor));
  rematerialize(program, nullptr);
  loop::eliminate_dead_code(program);
  CHECK(keeps(program, "t"));
}

TEST_CASE("an index that repeats an operand is not composed without a limit") {
  // Reflected padding by one column of reflected padding: an index has its operand three times.
  constexpr int kPads = 9;
  const sym::Expr n = sym::var("n");
  Pieces p("pads");
  View v = p.input("x", {n, 50000});
  for (int turn = 0; turn < kPads; ++turn) {
    const View to = p.temporary(cat("t", turn), {n, 50000});
    NestBuilder nest(p.program, cat("pad", turn));
    const sym::Expr i = nest.dim(n), j = nest.dim(50000);
    const sym::Expr period = sym::max(2 * n - 2, 1), m = sym::mod(i + 1, period);
    nest.store(to, {i, j}, nest.load(v, {sym::select(sym::lt(m, n), m, period - m), j}));
    nest.finish();
    v = to;
  }
  p.output("y", v);
  const Program after = rematerialized(p.program);
  uint64_t longest = 0;
  for (const Nest& nest : after.nests) longest = std::max(longest, longest_index(nest).terms);
  CHECK(longest < 4000);
  CHECK(!keeps(after, "t0"));  // a few pads in a row are one nest
  CHECK(std::ranges::count_if(after.buffers, [](const Buffer& b) { return b.storage == Storage::kArena; }) <
        kPads);
}
