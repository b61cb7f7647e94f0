#include "compiler/schedule/fusion/joint_reductions.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
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

// Two reductions of g. `second`: the nest of the second one.
std::string text_of(std::string_view second, std::string_view between = "") {
  return cat(R"(program sums
  symbol n = input 0 dim 0 in 1..8192
  input g f32 [n, 70000] ordinal 0
  input x f32 [n, 70000] ordinal 1
  output a f32 [70000] ordinal 0
  output b f32 [70000] ordinal 1
  inputs (g, x)
  outputs (a, b)
  steps
    nest 0 first (%i0<70000)
      %0 : f32 = reduce sum (%i1<n)
        %1 : f32 = load g[%i1, %i0]
        yield %1
      store a[%i0] %0
)",
             between, "    nest ", between.empty() ? 1 : 2, " second ", second);
}

int launches_of(const std::string& text) {
  const Program before = parse_program(text);
  Program after = before;
  join_reductions(after, nullptr);
  loop::eliminate_dead_code(after);
  verify(after);
  plan_memory(after);
  CHECK(same_results(before, after, {{sym::var("n"), 5}}));
  int count = 0;
  for (const Step& step : after.steps) count += std::holds_alternative<Launch>(step.node);
  return count;
}

constexpr std::string_view kProducts = R"((%j<70000)
      %0 : f32 = reduce sum (%k<n)
        %1 : f32 = load x[%k, %j]
        %2 : f32 = load g[%k, %j]
        %3 : f32 = add %1 %2
        yield %3
      %4 : f32 = mul %0 %0
      store b[%j] %4
)";

}  // namespace

TEST_CASE("sums over equal loops that read one tensor at the same index are one pass") {
  CHECK(launches_of(text_of(kProducts)) == 1);
}

TEST_CASE("reductions that run otherwise, combine otherwise or depend on each other stay apart") {
  const auto with = [](std::string_view from, std::string_view to) {
    return text_of(replaced(std::string(kProducts), from, to));
  };
  CHECK(launches_of(with("reduce sum", "reduce max")) == 2);
  CHECK(launches_of(with("load g[%k, %j]", "load g[n - 1 - %k, %j]")) == 2);
  CHECK(launches_of(with("%k<n", "%k<(n + 1)//2")) == 2);
  CHECK(launches_of(with("%4 : f32 = mul %0 %0", "%5 : f32 = load a[%j]\n      %4 : f32 = mul %0 %5")) == 2);
  CHECK(launches_of(with("%4 : f32 = mul %0 %0\n",
                         "for (%m<4)\n        store b[%j] %0\n      %4 : f32 = mul %0 %0\n")) == 2);
  // Another step needs the first sum, and the second sum needs that step.
  CHECK(launches_of(text_of(replaced(std::string(kProducts), "load x[%k, %j]", "load c[%j]"),
                            R"(    nest 1 between (%i0<70000)
      %0 : f32 = load a[%i0]
      store c[%i0] %0
)")
                        .replace(text_of("").find("  output a"), 0, "  arena c f32 [70000]\n")) == 3);
}
