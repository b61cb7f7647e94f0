// Rewrites of simplify() that inspect all terms of a sum at once. Each returns the new expression, or
// nothing.
#pragma once

#include <optional>

#include "compiler/sym/facts.h"

namespace stridec::sym {

// e is a floordiv or mod: for a factor g of the divisor g*h, (g*x + y) floordiv (g*h) is x floordiv h and
// (g*x + y) mod (g*h) is g*(x mod h) + y, where 0 <= y < g.
std::optional<Expr> split_division(Expr e, const Facts& facts);

// e is a floordiv or mod: (g*x + y) floordiv g is x + (y floordiv g) and (g*x + y) mod g is y mod g, provided
// that y floordiv g has at most two values and e, or its quotient, has more: (49*i + j) floordiv 50 is i +
// ((j - i) floordiv 50).
std::optional<Expr> narrow_division(Expr e, const Facts& facts);

// Recombines mixed-radix digits: c*(x mod y) + z mod c is (c*x + z mod c) mod (c*y), if that is shorter, as
// it is if x has a term z floordiv c.
std::optional<Expr> join_digits(Expr e, const Facts& facts);

// c + min(a - c, b) is min(a, b + c), if that is shorter; also for multiples of a minimum or maximum.
std::optional<Expr> absorb_into_extremum(Expr e);

// min(a, b) + max(a - d, b - d) is a + b - d: the sizes of the two parts of a tensor that is cut.
std::optional<Expr> pair_extrema(Expr e);

// min(a + c, b + c) is min(a, b) + c.
std::optional<Expr> share_terms(Expr e);

// A comparison of c*a and c*b is one of a and b for c >= 1.
std::optional<Expr> cancel_positive_factor(Expr e, const Facts& facts);

// g*x + y <= 0 is x <= k if y is too small to change the result.
std::optional<Expr> drop_small_part(Expr e, const Facts& facts);

}  // namespace stridec::sym
