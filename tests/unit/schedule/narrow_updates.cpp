#include "compiler/schedule/algebra/narrow_updates.h"

#include <doctest/doctest.h>

#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::testing;

namespace {

// Adds row `row` of g to row `at` of s, n rows of 4, with the given condition on %i0.
Program accumulation(const std::string& condition, const std::string& extent = "n", bool inner = false) {
  std::string text = R"(
program accumulation
  symbol n = input 0 dim 0 in 3..16
  input g f32 [n, 4]
  state s f32 [)" + extent +
                     R"(, 4] ordinal 0
  output y f32 [)" + extent +
                     R"(, 4] ordinal 0
  inputs (g)
  outputs (y)
  states (s)
  steps
)";
  text += inner ? "    nest 0 add (%i1<4)\n      for (%i0<" + extent + ")\n  "
                : "    nest 0 add (%i0<" + extent + ", %i1<4)\n";
  const std::string indent = inner ? "        " : "      ";
  text = text.substr(0, inner ? text.size() - 2 : text.size());
  for (const std::string& line :
       {std::string("%0 : f32 = load s[%i0, %i1]"), "%1 : f32 = load g[1, %i1] if " + condition + " else 0",
        std::string("%2 : f32 = neg %1"), std::string("%3 : f32 = add %0 %2"),
        std::string("store s[%i0, %i1] %3")})
    text += indent + line + "\n";
  text += "    nest 1 out (%i0<" + extent + R"(, %i1<4)
      %0 : f32 = load s[%i0, %i1]
      store y[%i0, %i1] %0
)";
  Program program = parse_program(text);
  verify(program);
  return program;
}

Program narrowed(const Program& before) {
  Program after = before;
  schedule::narrow_updates(after);
  verify(after);
  return after;
}

}  // namespace

TEST_CASE("an addition at one index touches that index alone") {
  for (const std::string condition : {"2 == %i0", "%i0 <= 2 && 2 <= %i0", "n == %i0 + 1"})
    for (const bool inner : {false, true}) {
      const Program before = accumulation(condition, "16", inner);
      if (condition == "n == %i0 + 1" && inner) continue;
      Program after = narrowed(before);
      const std::string text = to_string(after);
      INFO(text);
      const bool alone =
          text.find("add (%i0<4)") != std::string::npos || text.find("add (%i1<4)") != std::string::npos;
      CHECK(alone);
      CHECK(text.find("for (") == std::string::npos);
      schedule::plan_memory(after);
      for (const int64_t n : {3, 16}) CHECK(same_results(before, after, {{sym::var("n"), n}}));
    }
}

TEST_CASE("additions at several indices, or at one that may not exist, stay") {
  for (const auto& [condition, extent] : {std::pair<std::string, std::string>{"%i0 <= 2 && 1 <= %i0", "16"},
                                          {"5 == %i0", "4"},
                                          {"%i0 <= 2", "16"}}) {
    const Program before = accumulation(condition, extent);
    CHECK(to_string(narrowed(before)) == to_string(before));
  }
}
