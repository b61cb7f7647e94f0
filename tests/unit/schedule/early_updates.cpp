#include "compiler/schedule/memory/early_updates.h"

#include <doctest/doctest.h>

#include <string>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "tests/unit/schedule/programs.h"

using namespace stridec;
using namespace stridec::loop;
using namespace stridec::schedule;

namespace {

// The names of the nests in the order of the run, after the pass.
std::string order_of(std::string_view steps, std::string_view symbols = "") {
  Program program = parse_program(cat("program t\n", symbols, R"(  input x f32 [64, 64] ordinal 0
  input n i64 [] ordinal 1
  output y f32 [64, 64] ordinal 0
  output norm f32 [] ordinal 1
  state w f32 [64, 64] ordinal 0
  state seed f32 [] ordinal 1
  arena g f32 [64, 64]
  arena part f32 [8]
  arena rate f32 []
  inputs (x, n)
  outputs (y, norm)
  states (w, seed)
  steps
)",
                                      steps));
  verify(program);
  update_early(program);
  verify(program);
  std::string names;
  for (const Step& step : program.steps)
    if (const auto* launch = std::get_if<Launch>(&step.node))
      names += cat(names.empty() ? "" : " ", program[launch->nest].name);
  return names;
}

constexpr std::string_view kGradient = R"(
    nest 0 gradient (%i0<64, %i1<64)
      %0 : f32 = load x[%i0, %i1]
      store g[%i0, %i1] %0
)",
                           kOther = R"(
    nest 1 other (%i0<64, %i1<64)
      %0 : f32 = load x[%i0, %i1]
      store y[%i0, %i1] %0
)",
                           kUpdate = R"(
    nest 2 update (%i0<64, %i1<64)
      %0 : f32 = load w[%i0, %i1]
      %1 : f32 = load g[%i0, %i1]
      %2 : f32 = sub %0 %1
      store w[%i0, %i1] %2
)";

}  // namespace

TEST_CASE("an update and the parts of a norm run right after the gradient that they read") {
  CHECK(order_of(cat(kGradient, kOther, kUpdate)) == "gradient update other");
  CHECK(order_of(cat(kGradient, kOther, R"(
    nest 3 sums (%i0<8)
      %0 : f32 = reduce sum (%i1<8, %i2<64)
        %1 : f32 = load g[8 * %i0 + %i1, %i2]
        yield %1
      store part[%i0] %0
    nest 4 whole ()
      %0 : f32 = reduce sum (%i0<8)
        %1 : f32 = load part[%i0]
        yield %1
      store norm[] %0
)",
                     kUpdate)) == "gradient update sums other whole");
}

TEST_CASE("an update that reads the norm of all gradients runs after it") {
  CHECK(order_of(cat(kGradient, kOther, R"(
    nest 3 sums ()
      %0 : f32 = reduce sum (%i0<64, %i1<64)
        %1 : f32 = load g[%i0, %i1]
        yield %1
      store rate[] %0
    nest 4 again (%i0<64, %i1<64)
      %0 : f32 = load y[%i0, %i1]
      %1 : f32 = load rate[]
      store y[%i0, %i1] %1
    nest 2 update (%i0<64, %i1<64)
      %0 : f32 = load rate[]
      %1 : f32 = load g[%i0, %i1]
      %2 : f32 = mul %0 %1
      store w[%i0, %i1] %2
)")) == "gradient sums update other again");
}

TEST_CASE("an update runs after the readers of the old value and after other writers") {
  CHECK(order_of(cat(kGradient, R"(
    nest 1 reader (%i0<64, %i1<64)
      %0 : f32 = load w[%i0, %i1]
      store y[%i0, %i1] %0
)",
                     kUpdate)) == "gradient reader update");
  CHECK(order_of(cat(kGradient, kOther, R"(
    nest 3 writer (%i0<64)
      %0 : f32 = load x[%i0, 0]
      store w[%i0, 0] %0
)",
                     kUpdate)) == "gradient other writer update");
}

TEST_CASE("an update that frees no gradient keeps its place, such as that of a generator") {
  CHECK(order_of(cat(R"(
    nest 0 draw (%i0<64, %i1<64)
      %0 : f32 = load seed[]
      store g[%i0, %i1] %0
)",
                     kOther, R"(
    nest 2 advance ()
      %0 : f32 = load seed[]
      %1 : f32 = add %0 %0
      store seed[] %1
)")) == "draw other advance");
}

TEST_CASE("programs whose sizes depend on data keep the order") {
  // A run fails where such a size does not fit, and keeps its states.
  CHECK(order_of(cat(R"(
    bind count = n in [0, 64] "the count is {0}"
)",
                     kGradient, kOther, kUpdate),
                 "  symbol count in 0..64\n") == "gradient other update");
}
