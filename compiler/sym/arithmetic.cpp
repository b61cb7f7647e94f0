// Canonical + - * floordiv mod.
#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/sym/integer.h"
#include "compiler/sym/polynomial.h"
#include "compiler/sym/text.h"

namespace stridec::sym {
namespace {

// Shortened for a message, since a product may have dozens of factors.
std::string shortened(Expr e) {
  constexpr size_t kMost = 60;
  const std::string text = to_string(e);
  return text.size() <= kMost ? text : cat("(", text.substr(0, kMost), "...)");
}

[[noreturn]] void overflow(Expr a, const char* op, Expr b) {
  fail(ErrorKind::kDoesNotFit, "size-overflow",
       cat("the size ", shortened(a), " ", op, " ", shortened(b), " does not fit in 64 bits"));
}

// a == quotient * c + rest for c > 0. The coefficients of rest are smaller than c in magnitude (and keep
// their signs), and its constant is in [0, c).
void split_by(const Polynomial& a, int64_t c, Polynomial& quotient, Polynomial& rest) {
  quotient.constant = floor_div(a.constant, c);
  rest.constant = floor_mod(a.constant, c);
  for (const Term& t : a.terms) {
    if (t.coefficient / c != 0) quotient.terms.push_back({t.base, t.coefficient / c});
    if (t.coefficient % c != 0) rest.terms.push_back({t.base, t.coefficient % c});
  }
}

// Divides every coefficient by g, which must divide them; the constant is rounded down.
Polynomial divided(Polynomial p, int64_t g) {
  for (Term& t : p.terms) t.coefficient /= g;
  p.constant = floor_div(p.constant, g);
  return p;
}

// Drops inner remainders that are redundant modulo c: k*mod(x,a) is k*x modulo c if c divides k*a.
std::optional<Polynomial> without_inner_mod(const Polynomial& p, int64_t c) {
  for (const Term& t : p.terms) {
    if (t.base.op() != Op::kMod || !t.base.arg(1).is_const()) continue;
    Checked period = checked_mul(t.coefficient, t.base.arg(1).value());
    if (!period || *period % c != 0) continue;
    Polynomial rest = p;
    std::erase_if(rest.terms, [&](const Term& u) { return u.base == t.base; });
    return add_scaled(rest, polynomial(t.base.arg(0)), t.coefficient);
  }
  return std::nullopt;
}

// x floordiv c for a constant c > 1, after split_by() has extracted multiples of c from x.
Expr floordiv_rest(const Polynomial& x, int64_t c) {
  if (x.terms.empty()) return Expr(floor_div(x.constant, c));
  if (x.terms.size() == 1 && x.terms[0].coefficient == 1) {
    Expr inner = x.terms[0].base;
    bool by_constant = (inner.op() == Op::kFloorDiv || inner.op() == Op::kMod) && inner.arg(1).is_const();
    int64_t a = by_constant ? inner.arg(1).value() : 0;
    if (inner.op() == Op::kFloorDiv && a > 0) {  // (y/a + k)/c == (y + a*k)/(a*c)
      Checked divisor = checked_mul(a, c), shift = checked_mul(a, x.constant);
      auto moved = shift ? add_scaled(polynomial(inner.arg(0)), {{}, *shift}, 1) : std::nullopt;
      if (divisor && moved) return floordiv(to_expr(*moved), Expr(*divisor));
    }
    if (inner.op() == Op::kMod && a > 0 && a % c == 0 && x.constant == 0) {
      return mod(floordiv(inner.arg(0), Expr(c)), Expr(a / c));
    }
  }
  return intern(Op::kFloorDiv, to_expr(x), Expr(c));
}

Expr floordiv_constant(Expr a, int64_t c) {
  if (c == 1) return a;
  Polynomial quotient, rest;
  split_by(polynomial(a), c, quotient, rest);
  if (join_divisions(rest)) {
    auto total = add_scaled(quotient, polynomial(floordiv_constant(to_expr(rest), c)), 1);
    return total ? to_expr(*total) : intern(Op::kFloorDiv, a, Expr(c));
  }
  int64_t g = static_cast<int64_t>(gcd(content(rest), static_cast<uint64_t>(c)));
  Expr last = rest.terms.empty() ? Expr() : floordiv_rest(divided(rest, g), c / g);
  auto total = add_scaled(quotient, polynomial(last), 1);
  return total ? to_expr(*total) : intern(Op::kFloorDiv, a, Expr(c));
}

Expr mod_constant(Expr a, int64_t c) {
  if (c == 1) return Expr();
  Polynomial p = polynomial(a), quotient, rest;
  while (auto simpler = without_inner_mod(p, c)) p = *std::move(simpler);
  split_by(p, c, quotient, rest);
  if (join_divisions(rest)) return mod_constant(to_expr(rest), c);
  if (rest.terms.empty()) return Expr(rest.constant);
  int64_t g = static_cast<int64_t>(gcd(content(rest), static_cast<uint64_t>(c)));
  int64_t low = rest.constant % g;
  Expr x = to_expr(divided(rest, g));
  return intern(Op::kMod, x, Expr(c / g)) * Expr(g) + Expr(low);
}

// Cancels the factors and the integer that are common to all terms of a and b.
bool cancel_common(Polynomial& a, Polynomial& b, Polynomial& common) {
  if (b.terms.empty()) return false;
  common = {{}, 1};
  uint64_t g = gcd(gcd(content(a), magnitude(a.constant)), gcd(content(b), magnitude(b.constant)));
  if (g > INT64_MAX) g = 1;
  if (a.constant == 0 && b.constant == 0) {
    std::vector<Expr> shared(factors_of(b.terms[0].base).begin(), factors_of(b.terms[0].base).end());
    auto keep = [&](const Polynomial& p) {
      for (const Term& t : p.terms) {
        auto f = factors_of(t.base);
        std::vector<Expr> both;
        std::set_intersection(shared.begin(), shared.end(), f.begin(), f.end(), std::back_inserter(both),
                              ExprLess{});
        shared = std::move(both);
      }
    };
    keep(a), keep(b);
    if (!shared.empty()) common = polynomial(product(shared));
  }
  if (g > 1) {
    auto scaled_common = add_scaled({}, common, static_cast<int64_t>(g));
    if (!scaled_common) return false;
    common = *scaled_common;
  }
  if (common.terms.empty() && common.constant == 1) return false;
  auto exact = [&](Polynomial& p) {
    if (common.terms.empty()) {
      p = divided(p, common.constant);
      return true;
    }
    auto d = divide(p, common);
    if (!d || !d->remainder.terms.empty() || d->remainder.constant != 0) return false;
    p = d->quotient;
    return true;
  };
  Polynomial a2 = a, b2 = b;
  if (!exact(a2) || !exact(b2)) return false;
  a = std::move(a2), b = std::move(b2);
  return true;
}

Expr negated(Expr e) { return Expr(-1) * e; }

bool negative_lead(const Polynomial& p) {
  return p.terms.empty() ? p.constant < 0 : p.terms[0].coefficient < 0;
}

}  // namespace

Expr operator+(Expr a, Expr b) {
  if (a.is_const(0)) return b;
  if (b.is_const(0)) return a;
  auto r = add_scaled(polynomial(a), polynomial(b), 1);
  if (!r) overflow(a, "+", b);
  return to_expr(*r);
}

Expr operator-(Expr a, Expr b) {
  if (b.is_const(0)) return a;
  if (a == b) return Expr();
  auto r = add_scaled(polynomial(a), polynomial(b), -1);
  if (!r) overflow(a, "-", b);
  return to_expr(*r);
}

Expr operator-(Expr a) { return Expr(-1) * a; }

Expr operator*(Expr a, Expr b) {
  if (a.is_const(1)) return b;
  if (b.is_const(1)) return a;
  if (a.is_const(0) || b.is_const(0)) return Expr();
  auto r = multiply(polynomial(a), polynomial(b));
  if (!r) overflow(a, "*", b);
  return to_expr(*r);
}

Expr sum(std::span<const Expr> terms) {
  Expr r;
  for (const Expr& t : terms) r = r + t;
  return r;
}

Expr product(std::span<const Expr> factors) {
  if (!stays_product(factors)) {
    Expr r(1);
    for (const Expr& f : factors) r = r * f;
    return r;
  }
  Expr coefficient(1);
  std::vector<Expr> all;
  for (const Expr& f : factors) {
    auto parts = factors_of(f);
    for (const Expr& part : parts) {
      if (part.is_const()) {
        coefficient = coefficient * part;
      } else {
        all.push_back(part);
      }
    }
  }
  std::sort(all.begin(), all.end(), ExprLess{});
  return coefficient.is_const(0) ? Expr() : scaled(intern(Op::kMul, all), coefficient.value());
}

Expr floordiv(Expr a, Expr b) {
  if (b.is_const()) {
    int64_t c = b.value();
    if (c == 0 || c == INT64_MIN) return intern(Op::kFloorDiv, a, b);
    if (a.is_const()) {
      Checked q = checked_floordiv(a.value(), c);
      if (!q) overflow(a, "//", b);
      return *q;
    }
    return c < 0 ? floordiv_constant(negated(a), -c) : floordiv_constant(a, c);
  }
  if (a.is_const(0)) return a;
  Polynomial x = polynomial(a), y = polynomial(b), quotient, common;
  if (auto d = divide(x, y)) {
    quotient = std::move(d->quotient);
    x = std::move(d->remainder);
  }
  if (negative_lead(y)) {
    auto nx = add_scaled({}, x, -1), ny = add_scaled({}, y, -1);
    if (nx && ny) x = *nx, y = *ny;
  }
  Expr rest;
  if (!x.terms.empty() || x.constant != 0) {
    rest = cancel_common(x, y, common) ? floordiv(to_expr(x), to_expr(y))
                                       : intern(Op::kFloorDiv, to_expr(x), to_expr(y));
  }
  auto total = add_scaled(quotient, polynomial(rest), 1);
  return total ? to_expr(*total) : intern(Op::kFloorDiv, a, b);
}

Expr mod(Expr a, Expr b) {
  if (b.is_const()) {
    int64_t c = b.value();
    if (c == 0 || c == INT64_MIN) return intern(Op::kMod, a, b);
    if (a.is_const()) return *checked_mod(a.value(), c);
    return c < 0 ? negated(mod_constant(negated(a), -c)) : mod_constant(a, c);
  }
  if (a.is_const(0) || a == b) return Expr();
  Polynomial x = polynomial(a), y = polynomial(b), common;
  for (const Term& t : x.terms) {  // k*mod(z, b) + r == k*z + r modulo b
    if (t.base.op() != Op::kMod || t.base.arg(1) != b) continue;
    return mod(a - scaled(t.base, t.coefficient) + t.base.arg(0) * Expr(t.coefficient), b);
  }
  if (auto d = divide(x, y)) x = std::move(d->remainder);
  if (x.terms.empty() && x.constant == 0) return Expr();
  if (negative_lead(y)) return negated(mod(negated(to_expr(x)), negated(b)));
  if (cancel_common(x, y, common)) return to_expr(common) * mod(to_expr(x), to_expr(y));
  return intern(Op::kMod, to_expr(x), to_expr(y));
}

Expr ceildiv(Expr a, Expr b) { return floordiv(a + b - 1, b); }
Expr align_up(Expr a, Expr b) { return ceildiv(a, b) * b; }
Expr abs(Expr a) { return max(a, -a); }

}  // namespace stridec::sym
