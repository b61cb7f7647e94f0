// The rewrite rules of simplify(), each written once: apply(pattern, replacement, condition).
//
// The simplifier passes an `apply` that collects them. The test passes one that checks each rule on random
// values (where the condition holds and the pattern has a value, the replacement has the same), that the
// condition is satisfiable, and that the rule fires. A condition is a pattern too: the simplifier proves it
// from facts, the test evaluates it. A replacement is smaller than its pattern, or closer to comparisons of
// plain sums, so that rewriting terminates. Rewrites that inspect all terms of a sum at once are code in
// simplify.cpp; those that need no facts are in the constructors.
#pragma once

#include "compiler/sym/pattern.h"

namespace stridec::sym {

template <class Apply>
void for_each_rule(Apply&& apply) {
  using namespace pattern;
  const Pattern x = Pattern::any(0), y = Pattern::any(1), z = Pattern::any(2), w = Pattern::any(3);
  const Pattern c0 = Pattern::any(4), c1 = Pattern::any(5), c2 = Pattern::any(6);
  const Pattern always = 1;

  // Minimum and maximum.
  apply(min(x, y), x, x <= y);
  apply(max(x, y), x, y <= x);
  apply(max(min(x, z), y), min(max(x, y), z), y <= z);
  apply(min(x, y) + max(x, y), x + y, always);
  apply(min(x, y) * max(x, y), x * y, always);

  // Division.
  apply(floordiv(floordiv(x, y), z), floordiv(x, y * z), 0 < z);
  apply(floordiv(mod(x, y), z), mod(floordiv(x, z), floordiv(y, z)), 0 < z && 0 < y && mod(y, z) == 0);
  apply(mod(mod(x, y), z), mod(x, z), mod(y, z) == 0);
  apply(x * floordiv(y, x), y, mod(y, x) == 0);
  apply(c1 * floordiv(y, c0), floordiv(c1, c0) * y, mod(c1, c0) == 0 && mod(y, c0) == 0);
  apply(c1 * mod(floordiv(x, c0), y), floordiv(c1, c0) * mod(x, c0 * y), mod(c1, c0) == 0 && mod(x, c0) == 0);

  // Selects that are a minimum, a maximum, or one of their sides.
  apply(select(x <= y, x, y), min(x, y), always);
  apply(select(x <= y, y, x), max(x, y), always);
  apply(select(x < y, x, y), min(x, y), always);
  apply(select(x < y, y, x), max(x, y), always);
  apply(select(x <= c0, x, c1), min(x, c1), c1 == c0 + 1);
  apply(select(x <= c0, c1, x), max(x, c1), c1 == c0 + 1);
  apply(select(x == y, x, y), y, always);
  apply(select(w, x, c0) * select(w, c1, y), select(w, c1 * x, c0 * y), always);
  // The index of a possibly broadcast dim: if the extent is 1 the index is 0 anyway.
  apply(select(x == 1, 0, y), y, 0 <= y && y < x);
  apply(select(select(x == 1, z, x) == 1, 0, y), y, 0 <= y && y < x);

  // Comparisons of quotients, minima, maxima and selects.
  apply(floordiv(x, y) <= z, x < y * z + y, 0 < y);
  apply(floordiv(x, y) < z, x < y * z, 0 < y);
  apply(z <= floordiv(x, y), y * z <= x, 0 < y);
  apply(z < floordiv(x, y), y * z + y <= x, 0 < y);
  apply(floordiv(x, y) == c0, y * c0 <= x && x < y * c0 + y, 0 < y);
  apply(floordiv(x, y) != c0, x < y * c0 || y * c0 + y <= x, 0 < y);
  apply(min(x, y) <= z, x <= z || y <= z, always);
  apply(min(x, y) < z, x < z || y < z, always);
  apply(z <= min(x, y), z <= x && z <= y, always);
  apply(z < min(x, y), z < x && z < y, always);
  apply(max(x, y) <= z, x <= z && y <= z, always);
  apply(max(x, y) < z, x < z && y < z, always);
  apply(z <= max(x, y), z <= x || z <= y, always);
  apply(z < max(x, y), z < x || z < y, always);
  apply(min(x, y) == x, x <= y, always);
  apply(max(x, y) == x, y <= x, always);
  apply(x * y == 0, x == 0 || y == 0, always);
  apply(x * y != 0, x != 0 && y != 0, always);
  apply(select(w, c0, c1) == c2, select(w, c0 == c2, c1 == c2), always);
  apply(select(w, c0, c1) != c2, select(w, c0 != c2, c1 != c2), always);
  apply(select(w, c0, c1) <= c2, select(w, c0 <= c2, c1 <= c2), always);
  apply(c2 <= select(w, c0, c1), select(w, c2 <= c0, c2 <= c1), always);
}

}  // namespace stridec::sym
