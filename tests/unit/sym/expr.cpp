#include "compiler/sym/expr.h"

#include <doctest/doctest.h>

#include "compiler/base/diagnostic.h"
#include "compiler/sym/text.h"

using namespace stridec;
using namespace stridec::sym;

namespace {
const Expr n = var("n"), m = var("m"), i = var("%i"), j = var("%j");
}

TEST_CASE("sym: equal structure is the same node") {
  CHECK(n + m == m + n);
  CHECK(2 * (n + 3) == 2 * n + 6);
  CHECK((n + m) * (n - m) == n * n - m * m);
  CHECK(n - n == Expr(0));
  CHECK(Expr() == Expr(0));
  CHECK(Expr(size_t{7}) == Expr(7));
  CHECK(var("%i") == i);
  CHECK(is_index(i));
  CHECK_FALSE(is_index(n));
  CHECK(has_index(i * 4 + n));
}

TEST_CASE("sym: division takes out what divides") {
  CHECK(floordiv(16 * i + j, 16) == i + floordiv(j, 16));
  CHECK(mod(16 * i + j, 16) == mod(j, 16));
  CHECK(floordiv(floordiv(n, 4), 8) == floordiv(n, 32));
  CHECK(mod(mod(n, 12), 4) == mod(n, 4));
  CHECK(floordiv(mod(n, 12), 4) == mod(floordiv(n, 4), 3));
  CHECK(16 * floordiv(n, 16) + mod(n, 16) == n);
  CHECK(n - 16 * floordiv(n, 16) == mod(n, 16));
  CHECK(floordiv(n * m * 768 + i * m * 768, m * 768) == n + i);
  CHECK(floordiv((n + m) * 768, n + m) == Expr(768));
  CHECK(floordiv(Expr(-7), 2) == Expr(-4));
  CHECK(mod(Expr(-7), 2) == Expr(1));
  CHECK(mod(Expr(7), -2) == Expr(-1));
}
