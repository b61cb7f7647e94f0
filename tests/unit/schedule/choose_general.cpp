#include "compiler/schedule/choose_general.h"

#include <doctest/doctest.h>

#include "compiler/base/text.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"

using namespace stridec;
using namespace stridec::loop;

namespace {

// A row's loop over columns holds two loops, with `kept` between them.
std::string schedule_of(const std::string& kept) {
  Program program = parse_program(cat(R"(program rows
  input x f32 [64, 32] ordinal 0
  output y f32 [64, 32] ordinal 0
  local kept f32 )",
                                      kept == "0" ? "[1]" : "[32]", R"(
  inputs (x)
  outputs (y)
  steps
    nest 0 rows (%i0<64)
      for (%i1<32)
        %0 : f32 = load x[%i0, %i1]
        for (%i2<3)
          store kept[)",
                                      kept, R"(] %0
        %1 : f32 = reduce sum (%i3<3)
          %2 : f32 = load kept[)",
                                      kept, R"(]
          yield %2
        %3 : f32 = exp %1
        store y[%i0, %i1] %3
)"));
  verify(program);
  schedule::choose_general(program, cpu_target("x86-64-v3"));
  return to_string(program.nests[0].schedule);
}

}  // namespace

TEST_CASE("lanes do not share what passes between loops inside of their loop") {
  CHECK(schedule_of("%i1").find("vectorize %i1") != std::string::npos);
  CHECK(schedule_of("0").find("vectorize %i1") == std::string::npos);
}
