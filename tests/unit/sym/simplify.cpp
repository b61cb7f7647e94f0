// Simplification of expressions from real models, and expressions that stay unchanged.
#include <doctest/doctest.h>

#include <initializer_list>
#include <string>

#include "compiler/sym/facts.h"
#include "compiler/sym/text.h"

using namespace stridec::sym;

namespace {

struct Row {
  const char* given;
  const char* simple;
};

Facts attention() {
  Facts f;
  for (const char* name : {"n", "m", "batch", "seq", "past"}) f.set_range(var(name), 1, std::nullopt);
  f.set_range(var("zero_or_more"), 0, std::nullopt);
  f.set_range(var("small"), 0, 7);
  f.set_divisible(var("m"), 16);
  f.set_index(var("%b"), var("batch"));
  f.set_index(var("%h"), 12);
  f.set_index(var("%s"), var("seq"));
  f.set_index(var("%i"), floordiv(var("n"), 16));
  f.set_index(var("%j"), 16);
  return f;
}

void check(std::initializer_list<Row> rows) {
  Facts f = attention();
  for (const Row& row : rows) {
    CHECK_MESSAGE(to_string(simplify(parse(row.given), f)) == row.simple, row.given);
  }
}

}  // namespace

TEST_CASE("simplify: merging and splitting dimensions") {
  check({
      {"(16*%i + %j)//16", "%i"},
      {"mod(16*%i + %j, 16)", "%j"},
      {"(16*%i + %j)//64", "%i//4"},
      {"mod(16*%i + %j, 64)", "%j + 16*mod(%i, 4)"},
      {"((%b*12 + %h)*seq + %s)//(12*seq)", "%b"},
      {"mod(((%b*12 + %h)*seq + %s)//seq, 12)", "%h"},
      {"mod((%b*12 + %h)*seq + %s, seq)", "%s"},
      {"%b//12*12 + mod(%b, 12)", "%b"},
      {"mod(%b//4, 3)*4 + %b//12*12 + mod(%b, 4)", "%b"},
      {"(m + %j)//16", "m//16"},
      {"mod(m + %j, 16)", "%j"},
      {"m//16*16", "m"},
      {"m//16*48", "3*m"},
      {"batch*past*64//(batch*64)", "past"},
      {"(batch*past*64 + batch*seq*64)//(past + seq)", "64*batch"},
      {"n//16*16", "16*(n//16)"},
      {"(n + %j)//16", "(%j + n)//16"},
  });
}

TEST_CASE("simplify: shifted indices keep their dims") {
  Facts f = attention();
  f.set_index(var("%r"), var("n"));
  f.set_index(var("%c"), var("n"));
  f.set_index(var("%x"), 50);
  f.set_index(var("%y"), 50);
  f.set_index(var("%z"), 4 * var("n"));
  const Row rows[] = {
      // [n, 2n] as [2n, n] without its first row, and back: the relative shift of attention scores.
      {"((%c - %r)//n + 1)//2", "0"},
      {"n*mod((%c - %r)//n + 1, 2) + mod(%c - %r, n)", "%c - %r + n"},
      {"(%x + (49*%x + %y)//50 + 1)//2", "%x"},
      {"50*mod(%x + (49*%x + %y)//50 + 1, 2) + mod(49*%x + %y, 50)", "%y - %x + 50"},
      // [n, n] with an additional column as [n + 1, n]: two rows remain.
      {"(%r*n + %c + n)//(n + 1)", "%r + (%c - %r - 1)//(n + 1) + 1"},
      {"mod(%r*n + %c + n, n + 1)", "mod(%c - %r - 1, n + 1)"},
      {"(50*%x + %y + 50)//51", "%x + (%y - %x + 50)//51"},
      // Not rewritten: three quotients, or two instead of two, are not gain.
      {"(47*%x + %y)//50", "(47*%x + %y)//50"},
      {"3*%j//4", "(3*%j)//4"},
      {"3*small//4", "(3*small)//4"},
      // A cyclic shift of windows of 4, in both directions.
      {"mod(%z + 2, 4) + 4*mod((%z + 2)//4 - 1, n)", "mod(%z - 2, 4*n)"},
      {"mod(mod(%z + 2, 4) + 4*mod((%z + 2)//4 - 1, n) + 2, 4*n)", "%z"},
      {"mod(%z//n, 4)*n + mod(%z + 1, n)", "n*mod(%z//n, 4) + mod(%z + 1, n)"},
      {"4*mod(%z//4, zero_or_more) + mod(%z, 4)", "mod(%z, 4*zero_or_more)"},
      {"4*mod(%z//4, any) + mod(%z, 4)", "mod(%z, 4) + 4*mod(%z//4, any)"},
      // A flat index split for a tensor that may be empty, and its offset.
      {"zero_or_more*seq*(any//(zero_or_more*seq)) + seq*mod(any//seq, zero_or_more) + mod(any, seq)", "any"},
  };
  for (const Row& row : rows)
    CHECK_MESSAGE(to_string(simplify(parse(row.given), f)) == row.simple, row.given);
}

TEST_CASE("simplify: an index into what may be broadcast") {
  Facts f = attention();
  f.set_index(var("%t"), var("zero_or_more"));
  const Row rows[] = {
      {"select(seq == 1, 0, %s)", "%s"},
      {"select(batch*seq == 1, 0, %b*seq + %s)", "%b*seq + %s"},
      {"select(select(seq == 1, past, seq) == 1, 0, %s)", "%s"},
      {"select(zero_or_more == 1, 0, %t)", "%t"},
      // Nothing is known about an index of another size.
      {"select(seq == 1, 0, %b)", "select(seq == 1, 0, %b)"},
      {"select(seq == 2, 0, %s)", "select(seq == 2, 0, %s)"},
      {"select(select(seq == 1, past, batch) == 1, 0, %s)",
       "select(select(seq == 1, past, batch) == 1, 0, %s)"},
  };
  for (const Row& row : rows)
    CHECK_MESSAGE(to_string(simplify(parse(row.given), f)) == row.simple, row.given);
}

TEST_CASE("simplify: minimum, maximum, choice") {
  check({
      {"min(n, 0)", "0"},
      {"max(n, 1)", "n"},
      {"min(n, n + zero_or_more)", "n"},
      {"min(n, m)", "min(m, n)"},
      {"max(min(n, 64), 0)", "min(n, 64)"},
      {"16*%i + min(16, n - 16*%i)", "16*%i + 16"},
      {"min(past + n, past + 8) - past", "min(n, 8)"},
      {"n - min(n, 8)", "max(n - 8, 0)"},
      {"select(n <= m, n, m)", "min(m, n)"},
      {"select(n == 1, 0, m)", "select(n == 1, 0, m)"},
      {"select(n == 1, n*m, 3)", "select(n == 1, m, 3)"},
      {"select(n == 0, 5, m)", "m"},
      {"select(%h < 0, %h + 12, %h)", "%h"},
  });
}

TEST_CASE("simplify: conditions") {
  check({
      {"0 < n", "1"},
      {"n*m == 0", "0"},
      {"zero_or_more*n == 0", "zero_or_more == 0"},
      {"past*n <= past*m", "n <= m"},
      {"16*%s + %j < 16*m", "%s < m"},
      {"16*%s + %j < m", "16*%s + 15 < m"},
      {"n <= 4 && n <= 9", "n <= 4"},
      {"n <= 4 && 5 <= n", "0"},
      {"n <= 4 || 3 <= n", "1"},
      {"min(n, 64) <= 10", "n <= 10"},
      {"zero_or_more//4 <= 3", "zero_or_more <= 15"},
      {"small//8 == 0", "1"},
      {"select(n == 1, 3, 4) == 3", "n == 1"},
      {"n == m", "m == n"},
  });
}

TEST_CASE("simplify: numbers near the end of 64 bits come to no harm") {
  Facts f;
  f.set_range(var("n"), 0, std::nullopt);
  Expr n = var("n"), huge = Expr(INT64_MAX);
  CHECK(simplify(min(huge, n), f) == n);
  CHECK(to_string(simplify(min(n + huge, 3), f)) == "3");
  CHECK(simplify(lt(n, huge), f) == lt(n, huge));
  CHECK(simplify(select(lt(n, Expr(INT64_MIN)), n, 7), f) == Expr(7));
  CHECK(simplify(floordiv(n, huge), f) == floordiv(n, huge));
  CHECK(simplify(mod(huge * n + 5, huge), f) == Expr(5));
}

TEST_CASE("simplify: the two parts of a cut size add up to it") {
  check({
      {"min(n, 3) + max(n - 3, 0)", "n"},
      {"max(n - past, 0) + min(n, past)", "n"},
      {"2*min(n, past) + 2*max(n - past, 0) + 1", "2*n + 1"},
      {"min(n, past + 2) + max(past, n - 2) + seq", "n + past + seq"},
      {"min(min(n, 3) + max(n - 3, 0), 3)", "min(n, 3)"},
      {"min(n, 3) + max(n - 4, 0)", "min(n, 3) + max(n - 4, 0)"},
      {"min(n, 3) - max(n - 3, 0)", "min(n, 3) - max(n - 3, 0)"},
  });
}
