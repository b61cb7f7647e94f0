// Sums as linear combinations of products: the basis of + - * floordiv mod and comparisons.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "compiler/sym/node.h"

namespace stridec::sym {

// coefficient * base. The base has no constant factor, is not a sum (a product may have sums as factors), and
// is not constant.
struct Term {
  Expr base;
  int64_t coefficient;
};

struct Polynomial {
  std::vector<Term> terms;  // sorted by compare(base), coefficients not 0
  int64_t constant = 0;

  bool is_constant() const { return terms.empty(); }
};

std::span<const Expr> factors_of(const Expr& base);  // of a term's base

Polynomial polynomial(Expr e);

// a + scale * b; nothing on overflow.
std::optional<Polynomial> add_scaled(const Polynomial& a, const Polynomial& b, int64_t scale);
std::optional<Polynomial> multiply(const Polynomial& a, const Polynomial& b);

// Whether the expanded product would have too many terms.
bool stays_product(std::span<const Expr> factors);

// Rewrites c*(x floordiv c) + x mod c to x, and x - c*(x floordiv c) to x mod c. Returns whether anything
// changed.
bool join_divisions(Polynomial& p);

// The canonical expression, after join_divisions().
Expr to_expr(const Polynomial& p);

Expr scaled(Expr base, int64_t coefficient);  // base as in Term

// a == quotient * b + remainder, where the remainder has fewer terms than a; nothing if no such quotient
// exists.
struct Division {
  Polynomial quotient, remainder;
};
std::optional<Division> divide(const Polynomial& a, const Polynomial& b);
// The same, but the remainder may have more terms: none of them is a multiple of b's first term.
std::optional<Division> divide_by_lead(const Polynomial& a, const Polynomial& b);

// A polynomial that is non-negative exactly where floordiv(a, b) >= k (below: <= k), for b >= 1.
std::optional<Polynomial> quotient_at_least(const Polynomial& a, const Polynomial& b, int64_t k);
std::optional<Polynomial> quotient_at_most(const Polynomial& a, const Polynomial& b, int64_t k);

// The largest integer that divides every coefficient (not the constant); 0 without terms.
uint64_t content(const Polynomial& p);

}  // namespace stridec::sym
