#include "compiler/loop/verify.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "compiler/base/diagnostic.h"
#include "compiler/loop/text.h"

using namespace stridec;
using namespace stridec::loop;

namespace {

// Verifies a program with one nest of these statements (lines without their indentation).
std::string verdict(const std::vector<std::string>& body, const std::string& dims = "%i0<n") {
  std::string text =
      "program p\n  symbol n = input 0 dim 0 in 1..100\n  input x f32 [n]\n  input k i64 [n]\n  arena t f32 "
      "[n]\n"
      "  local r f32 [4]\n  weight w f32 [4] bytes 16 hash 0000000000000000\n  output y f32 [n]\n  inputs "
      "(x, k)\n"
      "  outputs (y)\n  steps\n    nest 0 a (" +
      dims + ")\n";
  for (const std::string& line : body) text += "      " + line + "\n";
  try {
    verify(parse_program(text));
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kInternal);
    std::string message = e.what();
    return message.substr(message.find(": ") + 2);
  }
  return "good";
}

}  // namespace

TEST_CASE("a good nest passes") {
  CHECK(verdict({"%0 : f32 = load x[%i0]", "%1 : f32 = exp %0", "store y[%i0] %1"}) == "good");
  CHECK(verdict({"%0 : f32 = load x[%i0 + 1] if %i0 + 1 < n else 0", "store y[%i0] %0"}) == "good");
}

TEST_CASE("each broken rule is named") {
  CHECK(verdict({"store y[%i0] %0"}) == "no value %0");
  CHECK(verdict({"%0 : f32 = load x[%j]", "store y[%i0] %0"}) == "an index uses %j outside of its scope");
  CHECK(verdict({"%0 : f32 = load x[%i0]", "%0 : f32 = load x[%i0]"}) == "%0 is defined twice");
  CHECK(verdict({"%1 : f32 = exp %0", "%0 : f32 = load x[%i0]"}) == "%0 is used outside of its scope");
  CHECK(verdict({"%0 : f32 = reduce sum (%r1<4)", "  %1 : f32 = load x[%r1]", "  yield %1",
                 "store y[%i0] %1"}) == "%1 is used outside of its scope");
  CHECK(verdict({"for (%j1<4)", "  %0 : f32 = load x[%i0]", "store y[%j1] %0"}) ==
        "an index uses %j1 outside of its scope");
  CHECK(verdict({"for (%i0<4)"}) == "the index variable %i0 is defined twice");
  CHECK(verdict({"for (%j1<%j2, %j2<4)"}) == "an extent uses %j2 outside of its scope");
  CHECK(verdict({"for (%j1<m)"}) == "an extent uses the symbol m, which has no value here");
  CHECK(verdict({"%0 : f32 = load x[%i0]", "%1 : i64 = load k[%i0]", "%2 : i64 = add %0 %1"}) ==
        "%2: add of f32 and i64");
  CHECK(verdict({"%1 : i64 = load k[%i0]", "%2 : i64 = exp %1"}) == "%2: exp of i64");
  CHECK(verdict({"%0 : f32 = load x[%i0]", "%1 : f32 = lt %0 %0"}) == "%1 is not bool");
  CHECK(verdict({"%0 : f32 = load x[%i0]", "%1 : f32 = add %0"}) == "add takes 2 values");
  CHECK(verdict({"%0 : f64 = load x[%i0]"}) == "%0 is not f32, the dtype of x");
  CHECK(verdict({"%0 : f32 = load x[%i0, 0]"}) == "indexes x of rank 1 with 2");
  CHECK(verdict({"%1 : i64 = load k[%i0]", "store y[%i0] %1"}) == "stores i64 to y, which holds f32");
  CHECK(verdict({"%0 : f32 = load x[%i0]", "store x[%i0] %0"}) == "stores to x, which is read only here");
  CHECK(verdict({"%0 : f32 = load x[0]", "store w[%i0] %0 if %i0 < 4"}) ==
        "stores to w, which is read only here");
  CHECK(verdict({"%0 : f32 = load x[%i0]", "bind %g < n = %0 error"}) == "binds f32");
  CHECK(verdict({"%0 : bool = reduce and (%r<4)", "  %1 : bool = constant 1", "  yield %1 %1"}) ==
        "a reduce yields 2 values for 1 results");
  CHECK(verdict({"%0 : f32, %2 : i64 = reduce argmax (%r<4)", "  %1 : f32 = constant 1", "  yield %1"}) ==
        "a reduce yields 1 values for 2 results");
  CHECK(verdict({"%0 : f32 = reduce argmax (%r<4)", "  %1 : f32 = constant 1", "  yield %1"}) ==
        "reduce argmax yields 2");
  CHECK(verdict({"%0 : f32, %2 : f64 = reduce sum (%r<4)", "  %1 : f32 = constant 1",
                 "  %3 : f64 = constant 1", "  yield %1 %3"}) ==
        "a reduce of several values has several dtypes");
  CHECK(verdict({"%0 : f32 = reduce and (%r<4)", "  %1 : f32 = constant 1", "  yield %1"}) ==
        "reduce and of f32");
  CHECK(verdict({"%0 : f32 = reduce sum (%r<4)", "  %1 : f64 = constant 1", "  yield %1"}) ==
        "%0 has another dtype than what is reduced");
}

TEST_CASE("what is provably out of bounds somewhere is refused") {
  CHECK(verdict({"%0 : f32 = load x[%i0 + 1]"}) == "dim 0 of x, of extent n, is indexed with %i0 + 1");
  CHECK(verdict({"%0 : f32 = load x[%i0 - 1]"}) == "dim 0 of x, of extent n, is indexed with %i0 - 1");
  CHECK(verdict({"%0 : f32 = load x[n - 1 - %i0]"}) == "good");
  CHECK(verdict({"%0 : f32 = load r[%i0]"}) == "good");  // n may be at most 4
  CHECK(verdict({"for (%j<0)", "  %0 : f32 = load r[%j + 7]"}) == "good");
}

TEST_CASE("programs: names, launches, bound symbols") {
  auto broken = [](const std::string& text) {
    try {
      verify(parse_program("program p\n" + text));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("good");
  };
  CHECK(
      broken(
          "  symbol n in 0..9\n  arena t i64 []\n  arena u f32 [n]\n  steps\n    bind n = t in [0, 9] \"\"\n"
          "    nest 0 a (%i<n)\n      %0 : f32 = constant 0\n      store u[%i] %0\n") == "good");
  CHECK(
      broken(
          "  symbol n in 0..9\n  arena u f32 [n]\n  steps\n    nest 0 a (%i<n)\n      %0 : f32 = constant 0\n"
          "      store u[%i] %0\n") == "nest a: an extent uses the symbol n, which has no value here");
  CHECK(broken("  steps\n  unused\n    nest 0 a ()\n") == "program p: nest 0 (a) is never launched");
  CHECK(broken("  arena a f32 [2]\n  arena b f32 [3]\n  steps\n    copy a b\n") ==
        "program p: copies a to b of another shape");
  CHECK(broken("  arena a f32 [2]\n  steps\n    call frobnicate (a) (a) []\n") ==
        "program p: no routine is called 'frobnicate'");
  CHECK(broken("  arena a f32 [2]\n  inputs (a)\n  steps\n") == "program p: a is listed with other storage");
}
