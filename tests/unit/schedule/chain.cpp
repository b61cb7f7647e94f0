#include <doctest/doctest.h>

#include <string>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/fusion/fusion.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;
using namespace stridec::testing;

namespace {

// Scores, their softmax over keys (or over queries), values: three nests. `more` is appended to the steps,
// `buffers` to the declarations.
std::string attention(const std::string& row_index, const std::string& buffers = {},
                      const std::string& more = {},
                      const std::string& values = "input v f32 [m, 3] ordinal 2") {
  return cat(R"(program attention
  symbol n = input 0 dim 0 in 0..
  symbol m = input 1 dim 0 in 0..
  input q f32 [n, 4] ordinal 0
  input k f32 [m, 4] ordinal 1
  )",
             values, R"(
  output o f32 [n, 3] ordinal 0
  arena scaled f32 [m, 4]
  arena s f32 [n, m]
  arena p f32 [n, m]
)",
             buffers, R"(
  inputs (q, k)",
             values.starts_with("input") ? ", v" : "", R"()
  outputs (o)",
             buffers.find("output") == std::string::npos ? "" : ", z", R"()
  steps
    nest 0 scale (%i0<m, %i1<4)
      %0 : f32 = load k[%i0, %i1]
      %1 : f32 = constant 0.5
      %2 : f32 = mul %0 %1
      store scaled[%i0, %i1] %2
    nest 1 scores (%m0<n, %n1<m)
      %3 : f32 = reduce sum (%r2<4)
        %0 : f32 = load q[%m0, %r2]
        %1 : f32 = load scaled[%n1, %r2]
        %2 : f32 = mul %0 %1
        yield %2
      store s[%m0, %n1] %3
)",
             row_index == "row" ? R"(    nest 2 softmax (%i0<n)
      %1 : f32 = reduce max (%r1<m)
        %0 : f32 = load s[%i0, %r1]
        yield %0
      for (%i1<m)
        %2 : f32 = load s[%i0, %i1]
        %3 : f32 = sub %2 %1
        %4 : f32 = exp %3
        store p[%i0, %i1] %4
)"
                                : R"(    nest 2 softmax (%i0<m)
      %1 : f32 = reduce max (%r1<n)
        %0 : f32 = load s[%r1, %i0]
        yield %0
      for (%i1<n)
        %2 : f32 = load s[%i1, %i0]
        %3 : f32 = sub %2 %1
        %4 : f32 = exp %3
        store p[%i1, %i0] %4
)",
             R"(    nest 3 values (%m0<n, %n1<3)
      %3 : f32 = reduce sum (%r2<m)
        %0 : f32 = load p[%m0, %r2]
        %1 : f32 = load v[%r2, %n1]
        %2 : f32 = mul %0 %1
        yield %2
      store o[%m0, %n1] %3
)",
             more);
}

struct Result {
  Program program;
  std::string reason;  // why scores and values were not chained
  int launches = 0;
};

Result fused(const std::string& text) {
  const Program before = parse_program(text);
  Result result{.program = before};
  std::vector<Decision> decisions;
  fuse(result.program);
  schedule::chain(result.program, &decisions);
  verify(result.program);
  for (const Decision& decision : decisions)
    if (decision.reason.starts_with("not chained: ")) result.reason = decision.reason.substr(13);
  for_each_step(result.program.steps,
                [&](const Step& step) { result.launches += std::holds_alternative<Launch>(step.node); });
  Program planned = result.program;
  plan_memory(planned);
  for (int64_t m : {0, 1, 9}) {
    Bindings sizes;
    for (const Symbol& symbol : before.symbols) sizes[symbol.var] = symbol.var.name() == "n" ? 5 : m;
    CHECK(same_results(before, planned, sizes));
  }
  return result;
}

}  // namespace

TEST_CASE("scores, their softmax and values become one nest a row, with the row in one local buffer") {
  const Result result = fused(attention("row"));
  REQUIRE(result.launches == 1);
  const auto& launch = std::get<Launch>(result.program.steps[0].node);
  CHECK(to_string(result.program, result.program[launch.nest]) == R"(nest scale+scores+softmax+values (%i0<n)
  %0 : f32 = constant 0.5
  for (%i1<m)
    %1 : f32 = reduce sum (%i2<4)
      %2 : f32 = load q[%i0, %i2]
      %3 : f32 = load k[%i1, %i2]
      %4 : f32 = mul %3 %0
      %5 : f32 = mul %2 %4
      yield %5
    store s_1[%i1] %1
  %6 : f32 = reduce max (%i3<m)
    %7 : f32 = load s_1[%i3]
    yield %7
  for (%i4<m)
    %8 : f32 = load s_1[%i4]
    %9 : f32 = sub %8 %6
    %10 : f32 = exp %9
    store s_1[%i4] %10
  for (%i5<3)
    %11 : f32 = reduce sum (%i6<m)
      %12 : f32 = load s_1[%i6]
      %13 : f32 = load v[%i6, %i5]
      %14 : f32 = mul %12 %13
      yield %14
    store o[%i0, %i5] %11
)");
}

TEST_CASE("scores that someone else reads stay in memory") {
  const Result result =
      fused(attention("row", "  output z f32 [n, m] ordinal 1", R"(    nest 4 more (%i0<n, %i1<m)
      %0 : f32 = load s[%i0, %i1]
      %1 : f32 = exp %0
      store z[%i0, %i1] %1
)"));
  CHECK(result.launches > 1);
  CHECK(result.reason == "the intermediate is needed in memory");
}

TEST_CASE("a softmax over the queries is not a chain") {
  const Result result = fused(attention("column"));
  CHECK(result.launches > 1);
  CHECK(result.reason == "they share no dims");
}

TEST_CASE("values that are a weight are packed for a kernel of their own") {
  Pieces p("two_layers");
  const View x = p.input("x", {p.n, 8});
  const View h = p.softmax(p.matmul(x, p.weight("w", {8, 16}, 1)));
  p.output("y", p.matmul(h, p.weight("u", {16, 8}, 2)));
  Program after = p.program;
  std::vector<Decision> decisions;
  fuse(after);
  schedule::chain(after, &decisions);
  bool told = false;
  for (const Decision& decision : decisions)
    told = told || decision.reason == "not chained: weights are packed for a kernel of their own";
  CHECK(told);
}

TEST_CASE("a filter along the rows that are passed on is not a chain: rows share no columns") {
  const Result result = fused(R"(program depthwise
  symbol n = input 0 dim 0 in 0..
  input w f32 [n, 4] ordinal 0
  input x f32 [4, 18] ordinal 1
  input u f32 [n, 3] ordinal 2
  output o f32 [n, 16] ordinal 0
  arena s f32 [n, 18]
  inputs (w, x, u)
  outputs (o)
  steps
    nest 0 scores (%i0<n, %i1<18)
      %3 : f32 = reduce sum (%r0<4)
        %0 : f32 = load w[%i0, %r0]
        %1 : f32 = load x[%r0, %i1]
        %2 : f32 = mul %0 %1
        yield %2
      store s[%i0, %i1] %3
    nest 1 values (%i0<n, %i1<16)
      %3 : f32 = reduce sum (%r0<3)
        %0 : f32 = load s[%i0, %i1 + %r0]
        %1 : f32 = load u[%i0, %r0]
        %2 : f32 = mul %0 %1
        yield %2
      store o[%i0, %i1] %3
)");
  CHECK(result.launches > 1);
  CHECK(result.reason == "a contraction among them has no shared factor");
}
