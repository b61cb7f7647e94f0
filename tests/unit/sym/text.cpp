#include "compiler/sym/text.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"
#include "compiler/sym/guard.h"

using namespace stridec;
using namespace stridec::sym;

namespace {

std::string complaint(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& e) {
    CHECK(e.diagnostic.kind == ErrorKind::kMalformed);
    return e.what();
  }
  return "accepted";
}

std::string c_name(Expr v) { return is_index(v) ? v.name().substr(1) : "s_" + v.name(); }

const Expr n = var("n"), m = var("m"), i = var("%i");

}  // namespace

TEST_CASE("sym text: as people write it") {
  CHECK(to_string(4 * var("batch") * var("sequence") + floordiv(i, 16)) == "4*batch*sequence + %i//16");
  CHECK(to_string(15 - n) == "15 - n");
  CHECK(to_string(-n - 3) == "-n - 3");
  CHECK(to_string(floordiv(n + 15, 16) * m) == "m*((n + 15)//16)");
  CHECK(to_string(select(eq(n, 1), 0, m)) == "select(n == 1, 0, m)");
  CHECK(to_string(logical_and(le(n, 4), logical_or(eq(m, 1), eq(m, 3)))) == "n <= 4 && (m == 1 || m == 3)");
  CHECK(to_string(var("past.sequence") + var("two words") + var("min")) ==
        "`min` + past.sequence + `two words`");
  CHECK(to_string(var("a`b")) == "`a``b`");
  CHECK(to_string(Expr(INT64_MIN)) == "-9223372036854775808");
  CHECK(to_string(Interval{1, 64}) == "1..64");
  CHECK(to_string(Interval{}) == "any");
}

TEST_CASE("sym text: what is read") {
  CHECK(parse(" ( n+3 ) * 2 - -n ") == 3 * n + 6);
  CHECK(parse("n > 3 && !(m == 2)") == logical_and(gt(n, 3), ne(m, 2)));
  CHECK(parse("ceildiv(n, 16)") == ceildiv(n, 16));
  CHECK(parse("align_up(n, 16)") == align_up(n, 16));
  CHECK(parse("abs(n)") == max(n, -n));
  CHECK(parse("-9223372036854775808") == Expr(INT64_MIN));
  CHECK(parse("n//4//2*3") == 3 * floordiv(n, 8));
  CHECK(parse("min") == var("min"));
}

TEST_CASE("sym text: what is not an expression is named with its column") {
  CHECK(complaint("n + ") == "in the expression 'n + ', column 5: the expression ends too early");
  CHECK(complaint("n n") == "in the expression 'n n', column 3: expected an operator or the end, not 'n'");
  CHECK(complaint("") != "accepted");
  CHECK(complaint("()") != "accepted");
  CHECK(complaint("%") != "accepted");
  CHECK(complaint("%4") != "accepted");
  CHECK(complaint("`x") != "accepted");
  CHECK(complaint("``") != "accepted");
  CHECK(complaint("mod(n)") != "accepted");
  CHECK(complaint("a < b < c") != "accepted");
  CHECK(complaint("9223372036854775808") != "accepted");
  CHECK(complaint("n @ 3") != "accepted");
  CHECK(complaint(std::string(100000, '(')) != "accepted");
  CHECK(complaint(std::string(60000, '(')) != "accepted");
  CHECK(complaint(std::string(60000, '-') + "n") != "accepted");
  CHECK(complaint(std::string(60000, '!') + "n") != "accepted");
}

TEST_CASE("sym text: long but flat text is fine, and ends soon") {
  std::string sum = "x0", minimum = "min(x0";
  for (int k = 1; k < 250; ++k) {
    sum += " + x" + std::to_string(k);
    minimum += ", x" + std::to_string(k);
  }
  CHECK(parse(sum).args().size() == 250);
  CHECK(parse(minimum + ")").args().size() == 250);
  std::string nested = "n", product = "(a + b)";
  for (int k = 0; k < 150; ++k) nested = "min(" + nested + "//7, m)";
  for (int k = 0; k < 100; ++k) product += "*(a + b + " + std::to_string(k) + ")";
  CHECK(parse(to_string(parse(nested))) == parse(nested));
  CHECK(parse(to_string(parse(product))) == parse(product));
}

TEST_CASE("sym text: random bytes are refused or read, and nothing else") {
  const std::string alphabet = "n%i0123456789+-*/()<>=!&|,`. modinmaxselect";
  uint32_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int k = 0; k < round % 40; ++k) {
      state = state * 1664525 + 1013904223;
      text += alphabet[(state >> 16) % alphabet.size()];
    }
    try {
      Expr e = parse(text);
      CHECK(parse(to_string(e)) == e);
    } catch (const Error& e) {
      CHECK((e.diagnostic.kind == ErrorKind::kMalformed || e.diagnostic.code == "size-overflow"));
    }
  }
}

TEST_CASE("sym text: C++") {
  Facts f;
  f.set_range(n, 1, std::nullopt);
  f.set_index(i, n);
  CHECK(to_c(floordiv(i, 4) + mod(i, 4) * 2, c_name, f) == "i / 4 + 2 * (i % 4)");
  CHECK(to_c(floordiv(m, 4), c_name, f) == "sd_floordiv(s_m, 4)");
  CHECK(to_c(mod(m, 4), c_name) == "sd_mod(s_m, 4)");
  CHECK(to_c(min(n, min(m, 3)), c_name) == "sd_min(sd_min(s_m, s_n), 3)");
  CHECK(to_c(select(eq(n, 1), 0, m - n) + 1, c_name) == "(s_n == 1 ? 0 : s_m - s_n) + 1");
  CHECK(to_c(-n - m, c_name) == "0 - s_m - s_n");
  CHECK(to_c(n * Expr(-3), c_name) == "(-3) * s_n");
  CHECK(to_c(Expr(INT64_MIN), c_name) == "(-9223372036854775807 - 1)");
  CHECK(to_c(logical_or(logical_and(le(n, 4), le(m, 4)), eq(n, m)), c_name) ==
        "s_m == s_n || (s_m <= 4 && s_n <= 4)");
}

TEST_CASE("sym guard: one sentence, at compile time and with numbers") {
  Guard g{eq(n, m), "cannot add: dimension {0} of 'x' and {1} of 'y' differ", {n, m + 1}};
  auto known = [](Expr v) -> std::optional<int64_t> { return v == n ? 3 : 4; };
  CHECK(render(g) == "cannot add: dimension n of 'x' and m + 1 of 'y' differ");
  CHECK(render(g, known) == "cannot add: dimension 3 of 'x' and m + 1 = 5 of 'y' differ");
  CHECK(check(g, Facts()) == Answer::kUnknown);
  CHECK(check(g, Facts().with(eq(n, m))) == Answer::kYes);
  CHECK(check(g, Facts().with(lt(n, m))) == Answer::kNo);
  CHECK(render(Guard{1, "{{0}} is {0}", {n}}) == "{0} is n");
}
