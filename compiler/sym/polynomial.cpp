#include "compiler/sym/polynomial.h"

#include <algorithm>

#include "compiler/sym/integer.h"

namespace stridec::sym {
namespace {

// Products of sums are expanded up to this many terms, and stay products beyond.
constexpr size_t kMaxExpandedTerms = 64;
// The product of this many sizes of at least 2 does not fit in 64 bits.
constexpr size_t kMaxFactors = 64;

Expr one() { return Expr(1); }

// The product of two bases; either may be the constant 1.
Expr multiply_bases(Expr a, Expr b) {
  if (a.is_const(1)) return b;
  if (b.is_const(1)) return a;
  auto x = factors_of(a), y = factors_of(b);
  std::vector<Expr> factors(x.size() + y.size());
  std::merge(x.begin(), x.end(), y.begin(), y.end(), factors.begin(), ExprLess{});
  return intern(Op::kMul, factors);
}

// a / b for bases, if every factor of b is one of a.
std::optional<Expr> divide_bases(const Expr& a, const Expr& b) {
  auto x = factors_of(a), y = factors_of(b);
  if (y.size() > x.size()) return std::nullopt;
  std::vector<Expr> rest;
  size_t used = 0;
  for (const Expr& factor : x) {
    if (used < y.size() && factor == y[used]) {
      ++used;
    } else {
      rest.push_back(factor);
    }
  }
  if (used < y.size()) return std::nullopt;
  if (rest.empty()) return one();
  return rest.size() == 1 ? rest[0] : intern(Op::kMul, rest);
}

// Sorts, merges equal bases, drops zeros.
bool normalise(Polynomial& p) {
  std::sort(p.terms.begin(), p.terms.end(),
            [](const Term& a, const Term& b) { return compare(a.base, b.base) < 0; });
  size_t kept = 0;
  for (size_t i = 0; i < p.terms.size();) {
    Term sum = p.terms[i];
    for (++i; i < p.terms.size() && p.terms[i].base == sum.base; ++i) {
      Checked c = checked_add(sum.coefficient, p.terms[i].coefficient);
      if (!c) return false;
      sum.coefficient = *c;
    }
    if (sum.coefficient != 0) p.terms[kept++] = sum;
  }
  p.terms.resize(kept, Term{Expr(), 0});
  return true;
}

// Finds k*m*mod(x,c) + k*m*c*floordiv(x,c) and replaces both by k*m*x. Returns whether anything changed.
bool join_division(Polynomial& p) {
  for (size_t i = 0; i < p.terms.size(); ++i) {
    const Term mod_term = p.terms[i];
    auto factors = factors_of(mod_term.base);
    for (size_t f = 0; f < factors.size(); ++f) {
      if (factors[f].op() != Op::kMod) continue;
      Expr x = factors[f].arg(0), c = factors[f].arg(1);
      std::vector<Expr> others(factors.begin(), factors.end());
      others.erase(others.begin() + static_cast<ptrdiff_t>(f));
      Polynomial m = polynomial(product(others));
      auto whole = multiply(m, polynomial(c));
      if (whole) whole = multiply(*whole, polynomial(floordiv(x, c)));
      if (!whole || whole->constant != 0 || whole->terms.size() != 1) continue;
      Term partner = whole->terms[0];
      auto at =
          std::find_if(p.terms.begin(), p.terms.end(), [&](const Term& t) { return t.base == partner.base; });
      if (at == p.terms.end() || checked_mul(partner.coefficient, mod_term.coefficient) != at->coefficient)
        continue;
      auto joined = multiply(m, polynomial(x));
      Polynomial rest = p;
      std::erase_if(rest.terms,
                    [&](const Term& t) { return t.base == partner.base || t.base == mod_term.base; });
      if (joined) joined = add_scaled(rest, *joined, mod_term.coefficient);
      if (!joined) continue;
      p = *std::move(joined);
      return true;
    }
  }
  return false;
}

// Finds k*m*x - k*m*c*floordiv(x,c) and replaces it by k*m*mod(x,c). Returns whether anything changed.
bool join_remainder(Polynomial& p) {
  for (const Term& t : p.terms) {
    auto factors = factors_of(t.base);
    for (size_t f = 0; f < factors.size(); ++f) {
      if (factors[f].op() != Op::kFloorDiv) continue;
      Expr x = factors[f].arg(0), c = factors[f].arg(1);
      // The other factors must contain c.
      std::vector<Expr> others(factors.begin(), factors.end());
      others.erase(others.begin() + static_cast<ptrdiff_t>(f));
      Polynomial cofactor{{}, t.coefficient};
      if (!others.empty()) cofactor = polynomial(scaled(product(others), t.coefficient));
      Polynomial m;
      if (c.is_const()) {
        if (c.value() <= 1 || t.coefficient % c.value() != 0) continue;
        m = cofactor.terms.empty() ? Polynomial{{}, t.coefficient / c.value()}
                                   : polynomial(scaled(product(others), t.coefficient / c.value()));
      } else {
        auto d = divide(cofactor, polynomial(c));
        if (!d || !d->remainder.is_constant() || d->remainder.constant != 0) continue;
        m = d->quotient;
      }
      auto mx = multiply(m, polynomial(x));  // m*c*floordiv(x,c) == m*x - m*mod(x,c)
      if (!mx) continue;
      Polynomial rest = p;
      std::erase_if(rest.terms, [&](const Term& u) { return u.base == t.base; });
      auto sum = add_scaled(rest, *mx, 1);
      // Every term of m*x must cancel.
      if (!sum || sum->terms.size() + mx->terms.size() != rest.terms.size()) continue;
      auto remainder = multiply(m, polynomial(mod(x, c)));
      auto joined = remainder ? add_scaled(*sum, *remainder, -1) : std::nullopt;
      if (!joined) continue;
      p = *std::move(joined);
      return true;
    }
  }
  return false;
}

bool has_division(const Polynomial& p) {
  for (const Term& t : p.terms) {
    for (const Expr& f : factors_of(t.base)) {
      if (f.op() == Op::kMod || f.op() == Op::kFloorDiv) return true;
    }
  }
  return false;
}

}  // namespace

std::span<const Expr> factors_of(const Expr& base) {
  if (base.op() == Op::kMul) return base.args();
  return {&base, 1};
}

static void append(Polynomial& p, Expr term) {
  if (term.is_const()) {
    p.constant = term.value();
  } else if (term.op() == Op::kMul && term.arg(0).is_const()) {
    auto rest = term.args().subspan(1);
    p.terms.push_back({rest.size() == 1 ? rest[0] : intern(Op::kMul, rest), term.arg(0).value()});
  } else {
    p.terms.push_back({term, 1});
  }
}

Polynomial polynomial(Expr e) {
  Polynomial p;
  if (e.op() == Op::kAdd) {
    p.terms.reserve(e.args().size());
    for (const Expr& term : e.args()) append(p, term);
  } else {
    append(p, e);
  }
  return p;
}

Expr scaled(Expr base, int64_t coefficient) {
  if (coefficient == 1) return base;
  if (base.op() != Op::kMul) return intern(Op::kMul, Expr(coefficient), base);
  std::vector<Expr> args{Expr(coefficient)};
  args.insert(args.end(), base.args().begin(), base.args().end());
  return intern(Op::kMul, args);
}

bool join_divisions(Polynomial& p) {
  if (p.terms.size() < 2 || !has_division(p)) return false;
  int joined = 0;
  while (joined < 32 && (join_division(p) || join_remainder(p))) ++joined;
  return joined > 0;
}

bool stays_product(std::span<const Expr> factors) {
  size_t terms = 1;
  for (const Expr& f : factors) {
    for (const Expr& part : factors_of(f)) {
      if (part.op() == Op::kAdd) terms *= part.args().size();
    }
    if (terms > kMaxExpandedTerms) return true;
  }
  return false;
}

Expr to_expr(const Polynomial& given) {
  Polynomial joined;
  const Polynomial* p = &given;
  if (given.terms.size() > 1 && has_division(given)) {
    joined = given;
    join_divisions(joined);
    p = &joined;
  }
  if (p->terms.empty()) return Expr(p->constant);
  if (p->terms.size() == 1 && p->constant == 0) return scaled(p->terms[0].base, p->terms[0].coefficient);
  std::vector<Expr> args;
  args.reserve(p->terms.size() + 1);
  for (const Term& t : p->terms) args.push_back(scaled(t.base, t.coefficient));
  if (p->constant != 0) args.push_back(Expr(p->constant));
  return intern(Op::kAdd, args);
}

std::optional<Polynomial> add_scaled(const Polynomial& a, const Polynomial& b, int64_t scale) {
  Polynomial r;
  Checked shift = checked_mul(b.constant, scale);
  Checked constant = shift ? checked_add(a.constant, *shift) : std::nullopt;
  if (!constant) return std::nullopt;
  r.constant = *constant;
  r.terms.reserve(a.terms.size() + b.terms.size());
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    int order = i == a.terms.size()   ? 1
                : j == b.terms.size() ? -1
                                      : compare(a.terms[i].base, b.terms[j].base);
    if (order < 0) {
      r.terms.push_back(a.terms[i++]);
      continue;
    }
    Checked c = checked_mul(b.terms[j].coefficient, scale);
    if (c && order == 0) c = checked_add(a.terms[i++].coefficient, *c);
    if (!c) return std::nullopt;
    if (*c != 0) r.terms.push_back({b.terms[j].base, *c});
    ++j;
  }
  return r;
}

namespace {

size_t degree(const Polynomial& p) {
  size_t most = 0;
  for (const Term& t : p.terms) most = std::max(most, factors_of(t.base).size());
  return most;
}

}  // namespace

std::optional<Polynomial> multiply(const Polynomial& a, const Polynomial& b) {
  if (degree(a) + degree(b) > kMaxFactors) return std::nullopt;
  size_t na = a.terms.size() + (a.constant != 0), nb = b.terms.size() + (b.constant != 0);
  if (na * nb > kMaxExpandedTerms && na > 1 && nb > 1) {
    Polynomial r;
    r.terms.push_back({multiply_bases(to_expr(a), to_expr(b)), 1});
    return r;
  }
  Polynomial r;
  Checked constant = checked_mul(a.constant, b.constant);
  if (!constant) return std::nullopt;
  r.constant = *constant;
  r.terms.reserve(na * nb);
  auto push = [&](Expr base, int64_t x, int64_t y) {
    Checked c = checked_mul(x, y);
    if (c && *c != 0) r.terms.push_back({base, *c});
    return c.has_value();
  };
  for (const Term& s : a.terms) {
    for (const Term& t : b.terms) {
      if (!push(multiply_bases(s.base, t.base), s.coefficient, t.coefficient)) return std::nullopt;
    }
    if (!push(s.base, s.coefficient, b.constant)) return std::nullopt;
  }
  for (const Term& t : b.terms) {
    if (!push(t.base, t.coefficient, a.constant)) return std::nullopt;
  }
  if (!normalise(r)) return std::nullopt;
  return r;
}

std::optional<Division> divide_by_lead(const Polynomial& a, const Polynomial& b) {
  if (b.terms.empty()) return std::nullopt;
  const Term lead = b.terms[0];
  Division d{{}, a};
  for (size_t steps = 0, at = 0; at < d.remainder.terms.size() && steps < 32;) {
    Term t = d.remainder.terms[at];
    auto base =
        t.coefficient % lead.coefficient == 0 && !(lead.coefficient == -1 && t.coefficient == INT64_MIN)
            ? divide_bases(t.base, lead.base)
            : std::nullopt;
    if (!base) {
      ++at;
      continue;
    }
    Polynomial q = polynomial(*base);
    auto scaled_q = add_scaled({}, q, t.coefficient / lead.coefficient);
    auto taken = scaled_q ? multiply(*scaled_q, b) : std::nullopt;
    auto rest = taken ? add_scaled(d.remainder, *taken, -1) : std::nullopt;
    auto quotient = rest ? add_scaled(d.quotient, *scaled_q, 1) : std::nullopt;
    if (!quotient) return std::nullopt;
    d = {*std::move(quotient), *std::move(rest)};
    ++steps;
  }
  if (d.quotient.terms.empty() && d.quotient.constant == 0) return std::nullopt;
  return d;
}

std::optional<Division> divide(const Polynomial& a, const Polynomial& b) {
  auto d = divide_by_lead(a, b);
  if (!d) return std::nullopt;
  size_t before = a.terms.size() + (a.constant != 0);
  size_t after = d->remainder.terms.size() + (d->remainder.constant != 0);
  if (after >= before) return std::nullopt;
  return d;
}

std::optional<Polynomial> quotient_at_least(const Polynomial& a, const Polynomial& b, int64_t k) {
  return k == INT64_MIN ? std::nullopt : add_scaled(a, b, -k);
}

std::optional<Polynomial> quotient_at_most(const Polynomial& a, const Polynomial& b, int64_t k) {
  auto rest = add_scaled(b, b, k);
  if (rest) rest = add_scaled(*rest, a, -1);
  return rest ? add_scaled(*rest, {{}, 1}, -1) : std::nullopt;
}

uint64_t content(const Polynomial& p) {
  uint64_t g = 0;
  for (const Term& t : p.terms) g = gcd(g, magnitude(t.coefficient));
  return g;
}

}  // namespace stridec::sym
