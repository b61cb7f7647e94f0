#include "compiler/sym/sum_rewrites.h"

#include <algorithm>

#include "compiler/sym/facts_state.h"
#include "compiler/sym/integer.h"
#include "compiler/sym/interval.h"

namespace stridec::sym {
namespace {

Expr term_expr(const Term& t) { return scaled(t.base, t.coefficient); }

// p == g*multiple + small, split by which terms g divides; a constant g also splits the constant.
struct Split {
  Polynomial multiple, small;
};
std::optional<Split> split_terms(const Polynomial& p, const Polynomial& g, const Facts& facts) {
  Split s;
  auto into = [](Polynomial& to, const Polynomial& what) {
    auto r = add_scaled(to, what, 1);
    if (r) to = *std::move(r);
    return r.has_value();
  };
  for (const Term& t : p.terms) {
    Polynomial one{{t}, 0};
    if (g.terms.empty()) {
      if (t.coefficient % g.constant == 0) {
        one.terms[0].coefficient /= g.constant;
        if (!into(s.multiple, one)) return std::nullopt;
        continue;
      }
      if (facts.known_divisor(term_expr(t)) % g.constant == 0) {
        // Exact division, so that the sign can be moved outside.
        int64_t sign = t.coefficient < 0 ? -1 : 1;
        Expr quotient = floordiv(term_expr(t) * sign, g.constant) * sign;
        if (!into(s.multiple, polynomial(quotient))) return std::nullopt;
        continue;
      }
    } else if (auto d = divide(one, g); d && d->remainder.terms.empty() && d->remainder.constant == 0) {
      if (!into(s.multiple, d->quotient)) return std::nullopt;
      continue;
    }
    if (!into(s.small, one)) return std::nullopt;
  }
  int64_t constant = p.constant;
  if (g.terms.empty()) {
    if (!into(s.multiple, {{}, floor_div(constant, g.constant)})) return std::nullopt;
    constant = floor_mod(constant, g.constant);
  }
  if (!into(s.small, {{}, constant})) return std::nullopt;
  return s;
}

// The k with k*g <= p < (k+1)*g, if the facts determine it.
std::optional<int64_t> whole_multiples(const Polynomial& p, const Polynomial& g, const Facts& facts) {
  Expr e = to_expr(p);
  if (g.terms.empty()) {
    Interval i = facts.bounds(e);
    if (!i.has_lo() || !i.has_hi()) return std::nullopt;
    int64_t k = floor_div(i.lo, g.constant);
    if (k == floor_div(i.hi, g.constant)) return k;
    return std::nullopt;
  }
  if (prove_directly(le(0, e), facts) != Answer::kYes ||
      prove_directly(lt(e, to_expr(g)), facts) != Answer::kYes) {
    return std::nullopt;
  }
  return 0;
}

// Candidate common factors of b and some terms of a: b itself, and the common factor of b and each term.
std::vector<Polynomial> common_factors(const Polynomial& a, const Polynomial& b, const Facts& facts) {
  std::vector<Polynomial> found{b};
  auto add = [&](Polynomial g) {
    if (g.terms.empty() && g.constant <= 1) return;
    for (const Polynomial& f : found) {
      if (to_expr(f) == to_expr(g)) return;
    }
    found.push_back(std::move(g));
  };
  if (b.terms.empty()) {
    for (const Term& t : a.terms) {
      add({{},
           static_cast<int64_t>(gcd(magnitude(facts.known_divisor(term_expr(t))), magnitude(b.constant)))});
    }
  } else if (b.terms.size() == 1 && b.constant == 0) {
    const Term& whole = b.terms[0];
    for (const Term& t : a.terms) {
      auto x = factors_of(t.base), y = factors_of(whole.base);
      std::vector<Expr> both;
      std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both), ExprLess{});
      int64_t k = static_cast<int64_t>(
          std::min<uint64_t>(gcd(magnitude(t.coefficient), magnitude(whole.coefficient)), INT64_MAX));
      auto g = add_scaled({}, polynomial(product(both)), k);
      if (g) add(*std::move(g));
    }
  }
  return found;
}

// a == b*quotient + remainder, where the coefficients of remainder are of the smallest magnitude modulo a
// constant b: 49*i + j == 50*i + (j - i).
std::optional<Division> nearest_multiple(const Polynomial& a, const Polynomial& b) {
  if (!b.terms.empty()) return divide_by_lead(a, b);
  Division d{{}, a};
  for (const Term& t : a.terms) {
    const int64_t whole = t.coefficient / b.constant, rest = t.coefficient % b.constant;
    int64_t times = whole;
    if (magnitude(rest) > static_cast<uint64_t>(b.constant) / 2) times += rest < 0 ? -1 : 1;
    if (times == 0) continue;
    const Polynomial one{{{t.base, times}}, 0};
    auto left = add_scaled({}, one, b.constant);
    if (left) left = add_scaled(d.remainder, *left, -1);
    auto quotient = add_scaled(d.quotient, one, 1);
    if (!left || !quotient) return std::nullopt;
    d = {*std::move(quotient), *std::move(left)};
  }
  if (d.quotient.terms.empty()) return std::nullopt;
  return d;
}

}  // namespace

std::optional<Expr> split_division(Expr e, const Facts& facts) {
  const Expr divisor = e.arg(1);
  if (facts.bounds(divisor).lo < 1) return std::nullopt;
  const Polynomial a = polynomial(e.arg(0)), b = polynomial(divisor);
  for (const Polynomial& g : common_factors(a, b, facts)) {
    const bool whole = to_expr(g) == divisor;
    if (!g.terms.empty() && facts.bounds(to_expr(g)).lo < 1) continue;
    auto s = split_terms(a, g, facts);
    if (!s || (!whole && s->small.terms.empty())) continue;
    auto k = whole_multiples(s->small, g, facts);
    if (!k) continue;
    Expr x = to_expr(s->multiple) + *k;
    Expr y = to_expr(s->small) - to_expr(g) * *k;
    Expr h = whole ? Expr(1) : floordiv(divisor, to_expr(g));
    return e.op() == Op::kFloorDiv ? floordiv(x, h) : to_expr(g) * mod(x, h) + y;
  }
  return std::nullopt;
}

std::optional<Expr> narrow_division(Expr e, const Facts& facts) {
  const Expr divisor = e.arg(1);
  if (facts.bounds(divisor).lo < 1) return std::nullopt;
  auto d = nearest_multiple(polynomial(e.arg(0)), polynomial(divisor));
  if (!d) return std::nullopt;
  const Expr rest = to_expr(d->remainder), quotient = floordiv(rest, divisor);
  const Interval to = facts.bounds(quotient);
  if (!to.has_lo() || !to.has_hi() || to.hi - 1 > to.lo) return std::nullopt;
  const Interval from = facts.bounds(e.op() == Op::kFloorDiv ? e : floordiv(e.arg(0), divisor));
  if (from.has_lo() && from.has_hi() && from.hi - 1 <= from.lo) return std::nullopt;
  return e.op() == Op::kFloorDiv ? to_expr(d->quotient) + quotient : mod(rest, divisor);
}

namespace {

// A term as weight * digit, for each of its factors that is a remainder.
struct Digit {
  Expr term, digit, weight;
};
std::vector<Digit> digits_of(const Polynomial& p) {
  std::vector<Digit> found;
  for (const Term& t : p.terms) {
    auto factors = factors_of(t.base);
    for (size_t f = 0; f < factors.size(); ++f) {
      if (factors[f].op() != Op::kMod) continue;
      std::vector<Expr> others(factors.begin(), factors.end());
      others.erase(others.begin() + static_cast<ptrdiff_t>(f));
      found.push_back({term_expr(t), factors[f], product(others) * t.coefficient});
    }
  }
  return found;
}

std::optional<Expr> join_two_digits(Expr e, const Facts& facts) {
  const std::vector<Digit> digits = digits_of(polynomial(e));
  for (const Digit& low : digits) {
    const Expr base = low.digit.arg(1);
    for (const Digit& high : digits) {
      if (high.term == low.term || high.weight != low.weight * base) continue;
      // A divisor of 0 needs no check: the remainder, and so the sum, has no value then.
      if (facts.bounds(base).lo < 0 || facts.bounds(high.digit.arg(1)).lo < 0) continue;
      Expr whole = mod(base * high.digit.arg(0) + low.digit, base * high.digit.arg(1));
      whole = e - low.term - high.term + low.weight * whole;
      if (whole.size() < e.size()) return whole;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Expr> join_digits(Expr e, const Facts& facts) {
  auto joined = join_two_digits(e, facts);
  while (joined) {
    auto more = join_two_digits(*joined, facts);
    if (!more) break;
    joined = more;
  }
  return joined;
}

std::optional<Expr> absorb_into_extremum(Expr e) {
  Polynomial p = polynomial(e);
  for (size_t i = 0; i < p.terms.size(); ++i) {
    const Term t = p.terms[i];
    if (t.base.op() != Op::kMin && t.base.op() != Op::kMax) continue;
    Polynomial rest = p;
    rest.terms.erase(rest.terms.begin() + static_cast<ptrdiff_t>(i));
    std::vector<Expr> args;
    for (const Expr& arg : t.base.args()) {
      auto moved = add_scaled(rest, polynomial(arg), t.coefficient);
      if (moved) args.push_back(to_expr(*moved));
    }
    if (args.size() != t.base.args().size()) continue;
    Expr whole = (t.base.op() == Op::kMin) == (t.coefficient > 0) ? min(args) : max(args);
    if (whole.size() < e.size()) return whole;
  }
  return std::nullopt;
}

namespace {

bool is_pair(const Term& t, Op op) { return t.base.op() == op && t.base.args().size() == 2; }

// a + b - d for low = min(a, b) and high = max(a - d, b - d).
std::optional<Polynomial> paired(Expr low, Expr high) {
  const Polynomial a = polynomial(low.arg(0)), b = polynomial(low.arg(1));
  for (size_t first : {0, 1}) {
    const Polynomial x = polynomial(high.arg(first)), y = polynomial(high.arg(1 - first));
    auto left = add_scaled(a, x, -1), right = add_scaled(b, y, -1);
    if (left && right && to_expr(*left) == to_expr(*right)) return add_scaled(b, x, 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Expr> pair_extrema(Expr e) {
  const Polynomial p = polynomial(e);
  for (const Term& low : p.terms) {
    if (!is_pair(low, Op::kMin)) continue;
    for (const Term& high : p.terms) {
      if (!is_pair(high, Op::kMax) || high.coefficient != low.coefficient) continue;
      auto whole = paired(low.base, high.base);
      if (!whole) continue;
      Polynomial rest = p;
      std::erase_if(rest.terms, [&](const Term& t) { return t.base == low.base || t.base == high.base; });
      whole = add_scaled(rest, *whole, low.coefficient);
      if (whole) return to_expr(*whole);
    }
  }
  return std::nullopt;
}

std::optional<Expr> share_terms(Expr e) {
  std::vector<Polynomial> args;
  for (const Expr& arg : e.args()) args.push_back(polynomial(arg));
  Polynomial common = args[0];
  for (const Polynomial& p : args) {
    std::erase_if(common.terms, [&](const Term& t) {
      return std::none_of(p.terms.begin(), p.terms.end(),
                          [&](const Term& u) { return u.base == t.base && u.coefficient == t.coefficient; });
    });
    if (p.constant != common.constant) common.constant = 0;
  }
  if (common.terms.empty() && common.constant == 0) return std::nullopt;
  std::vector<Expr> left;
  for (const Polynomial& p : args) {
    auto d = add_scaled(p, common, -1);
    if (!d) return std::nullopt;
    left.push_back(to_expr(*d));
  }
  Expr r = (e.op() == Op::kMin ? min(left) : max(left)) + to_expr(common);
  if (r.size() >= e.size()) return std::nullopt;
  return r;
}

std::optional<Expr> cancel_positive_factor(Expr e, const Facts& facts) {
  auto d = add_scaled(polynomial(e.arg(0)), polynomial(e.arg(1)), -1);
  if (!d || d->terms.empty() || d->constant != 0) return std::nullopt;
  auto first = factors_of(d->terms[0].base);
  for (const Expr& f : first) {
    Interval i = facts.bounds(f);
    const bool positive = i.lo >= 1, negative = i.hi <= -1;
    const bool orderless = e.op() == Op::kEq || e.op() == Op::kNe;
    if (!positive && !(negative && orderless)) continue;
    auto quotient = divide(*d, polynomial(f));
    if (!quotient || !quotient->remainder.terms.empty() || quotient->remainder.constant != 0) continue;
    const Expr args[] = {to_expr(quotient->quotient), Expr(0)};
    switch (e.op()) {
      case Op::kEq: return eq(args[0], args[1]);
      case Op::kNe: return ne(args[0], args[1]);
      case Op::kLt: return lt(args[0], args[1]);
      default: return le(args[0], args[1]);
    }
  }
  return std::nullopt;
}

std::optional<Expr> drop_small_part(Expr e, const Facts& facts) {
  if (e.op() != Op::kLe && e.op() != Op::kLt) return std::nullopt;
  auto d = add_scaled(polynomial(e.arg(0)), polynomial(e.arg(1)), -1);
  if (d && e.op() == Op::kLt) d = add_scaled(*d, {{}, 1}, 1);
  if (!d) return std::nullopt;
  std::vector<int64_t> tried;
  for (const Term& t : d->terms) {
    int64_t g = facts.known_divisor(term_expr(t));
    if (g <= 1 || std::find(tried.begin(), tried.end(), g) != tried.end()) continue;
    tried.push_back(g);
    auto s = split_terms(*d, {{}, g}, facts);
    if (!s || s->small.terms.empty()) continue;
    Interval i = multiply(facts.bounds(to_expr(s->small)), -1);
    if (!i.has_lo() || !i.has_hi() || floor_div(i.lo, g) != floor_div(i.hi, g)) continue;
    return le(to_expr(s->multiple), floor_div(i.lo, g));
  }
  return std::nullopt;
}

}  // namespace stridec::sym
