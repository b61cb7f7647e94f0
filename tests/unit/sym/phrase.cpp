#include "compiler/sym/phrase.h"

#include <doctest/doctest.h>

#include "compiler/sym/text.h"

using namespace stridec::sym;

TEST_CASE("conditions are phrased for people") {
  const auto said = [](const char* text) { return phrase(parse(text)); };
  CHECK(said("n <= 512") == "n <= 512");
  CHECK(said("1 <= n") == "n >= 1");
  CHECK(said("mod(n, 8) == 0") == "n is a multiple of 8");
  CHECK(said("n == m") == phrase(eq(var("n"), var("m"))));
}

TEST_CASE("conditions on a remainder say which multiples meet them") {
  const Expr h = var("h");
  CHECK(phrase(eq(8 * floordiv(h, 8), h)) == "h is a multiple of 8");
  CHECK(phrase(eq(ceildiv(h, 8), floordiv(h, 8))) == "h is a multiple of 8");
  CHECK(phrase(eq(ceildiv(h, 16), 2 * ceildiv(h, 32))) == "h is a multiple of 32, or 17..31 more than one");
  CHECK(phrase(eq(mod(h, 4), 3)) == "h is 3 more than a multiple of 4");
  CHECK(phrase(eq(floordiv(h, 2), floordiv(h + 2, 2) - 1)) ==
        to_string(eq(floordiv(h, 2), floordiv(h + 2, 2) - 1)));
  const std::string either = phrase(logical_or(eq(8 * ceildiv(h, 8), h), eq(h, 1)));
  CHECK(either.find("h is a multiple of 8") != std::string::npos);
  CHECK(either.find("h == 1") != std::string::npos);
  // Not periodic: true for small values alone. Two variables. Many remainders.
  CHECK(phrase(le(floordiv(h, 8), 3)).find("multiple") == std::string::npos);
  CHECK(phrase(eq(floordiv(h, 8), floordiv(var("w"), 8))).find("multiple") == std::string::npos);
  CHECK(phrase(eq(mod(h * h, 64), 36)).find("many") == std::string::npos);
}
