// Rewrites of simplify() that look at all terms of a sum at once. Each answers with the new expression, or
// with nothing.
#pragma once

#include <optional>

#include "compiler/sym/facts.h"

namespace stridec::sym {

// e is a floordiv or mod: for a factor g of the divisor g*h, (g*x + y) floordiv (g*h) is x floordiv h and
// (g*x + y) mod (g*h) is g*(x mod h) + y, where 0 <= y < g.
std::optional<Expr> split_division(Expr e, const Facts& facts);

// c + min(a - c, b) is min(a, b + c), where that is shorter; with any multiple of a minimum or maximum.
std::optional<Expr> absorb_into_extremum(Expr e);

// min(a + c, b + c) is min(a, b) + c.
std::optional<Expr> share_terms(Expr e);

// A comparison of c*a and c*b is one of a and b for c >= 1.
std::optional<Expr> cancel_positive_factor(Expr e, const Facts& facts);

// g*x + y <= 0 is x <= k where y is too small to decide otherwise.
std::optional<Expr> drop_small_part(Expr e, const Facts& facts);

}  // namespace stridec::sym
