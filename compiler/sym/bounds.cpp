// Facts::bounds and Facts::known_divisor: one bottom-up walk over the expression.
#include <algorithm>

#include "compiler/sym/cache.h"
#include "compiler/sym/facts_state.h"
#include "compiler/sym/integer.h"
#include "compiler/sym/interval.h"

namespace stridec::sym {
namespace {

constexpr Interval kCondition{0, 1};

int64_t common(int64_t a, int64_t b) { return static_cast<int64_t>(gcd(magnitude(a), magnitude(b))); }

// Bounds by interval arithmetic, and with `proofs` also by proofs if the intervals are too wide.
struct Bounds {
  const Facts& facts;
  bool proofs;
  Interval operator()(Expr e) const;
};

// A comparison whose operands' difference would overflow 64 bits.
Interval of_distant_numbers(Expr e, const Bounds& bounds) {
  Interval a = bounds(e.arg(0)), b = bounds(e.arg(1));
  const bool less = a.hi < b.lo, greater = b.hi < a.lo;
  if (!less && !greater) return e.op() == Op::kLt && b.hi <= a.lo ? Interval{0, 0} : kCondition;
  const bool holds = e.op() == Op::kNe || (e.op() != Op::kEq && less);
  return holds ? Interval{1, 1} : Interval{0, 0};
}

Interval of_comparison(Expr e, const Bounds& bounds) {
  auto d = add_scaled(polynomial(e.arg(0)), polynomial(e.arg(1)), -1);
  if (!d) return of_distant_numbers(e, bounds);
  Interval i = bounds(to_expr(*d));
  auto yes = [](bool value) { return value ? Interval{1, 1} : Interval{0, 0}; };
  switch (e.op()) {
    case Op::kLe:
      if (i.hi <= 0) return yes(true);
      if (i.lo > 0) return yes(false);
      break;
    case Op::kLt:
      if (i.hi < 0) return yes(true);
      if (i.lo >= 0) return yes(false);
      break;
    default:
      if (!i.contains(0)) return yes(e.op() == Op::kNe);
      if (i.is_point()) return yes(e.op() == Op::kEq);
      break;
  }
  return kCondition;
}

Interval of_product(Expr e, const Bounds& bounds) {
  Interval r{1, 1};
  for (size_t i = 0; i < e.args().size();) {
    size_t n = i + 1;
    while (n < e.args().size() && e.arg(n) == e.arg(i)) ++n;
    Interval factor = bounds(e.arg(i));
    for (size_t pairs = 0; pairs < (n - i) / 2; ++pairs) r = multiply(r, square(factor));
    if ((n - i) % 2 != 0) r = multiply(r, factor);
    i = n;
  }
  return r;
}

// The range of a sum that is known as a whole, as from assume(past + sequence <= 2048).
Interval of_known_sum(Expr e, const Facts& facts) {
  if (facts.state().bounds.empty()) return {};
  Normalised n = normalised(polynomial(e));
  const Facts::State::Bound* known = n.scale == 0 ? nullptr : facts.state().find_bound(n.of);
  if (!known) return {};
  return add(multiply(known->range, n.scale), Interval{n.shift, n.shift});
}

// The range of a quotient by a symbolic divisor: -1 <= floordiv(i - j, n) <= 0 for i, j < n.
Interval of_proved_quotient(Expr e, Interval known, const Facts& facts) {
  const Expr divisor = e.arg(1);
  if (divisor.is_const() || known.is_point() || interval_bounds(divisor, facts).lo < 1) return {};
  const Polynomial a = polynomial(e.arg(0)), b = polynomial(divisor);
  auto holds = [&](const std::optional<Polynomial>& p) { return p && not_negative_by_intervals(*p, facts); };
  Interval r;
  for (int64_t k : {0, -1}) {
    if (known.lo >= k || !holds(quotient_at_least(a, b, k))) continue;
    r.lo = k;
    break;
  }
  for (int64_t k = std::max(known.lo, r.lo) >= 0 ? 0 : -1; k < std::min<int64_t>(known.hi, 2); ++k) {
    if (!holds(quotient_at_most(a, b, k))) continue;
    r.hi = k;
    break;
  }
  return r;
}

Interval compute(Expr e, const Bounds& bounds) {
  const Facts& facts = bounds.facts;
  const Facts::State& state = facts.state();
  switch (e.op()) {
    case Op::kConst: return {e.value(), e.value()};
    case Op::kVar: {
      const Facts::State::Variable* v = state.find(e);
      Interval r = v ? v->range : Interval{};
      if (auto at = state.equal.find(e); at != state.equal.end()) r = intersect(r, bounds(at->second));
      return r;
    }
    case Op::kAdd: {
      Interval r{0, 0};
      for (const Expr& term : e.args()) r = add(r, bounds(term));
      return intersect(r, of_known_sum(e, facts));
    }
    case Op::kMul: return intersect(of_product(e, bounds), of_known_sum(e, facts));
    case Op::kFloorDiv: {
      Interval r = divide(bounds(e.arg(0)), bounds(e.arg(1)));
      return bounds.proofs ? intersect(r, of_proved_quotient(e, r, facts)) : r;
    }
    case Op::kMod: {
      Interval b = bounds(e.arg(1));
      Interval r = remainder(bounds(e.arg(0)), b);
      if (!bounds.proofs) return r;  // known_divisor depends on bounds, so this would recurse
      int64_t step = common(facts.known_divisor(e.arg(0)), facts.known_divisor(e.arg(1)));
      if (b.is_point() && r.has_hi() && step > 1) r.hi = floor_div(r.hi, step) * step;
      return r;
    }
    case Op::kMin:
    case Op::kMax: {
      Interval r = bounds(e.arg(0));
      for (const Expr& arg : e.args().subspan(1)) {
        r = e.op() == Op::kMin ? smaller(r, bounds(arg)) : larger(r, bounds(arg));
      }
      return r;
    }
    case Op::kSelect: {
      Interval c = bounds(e.arg(0));
      if (c.lo == 1) return bounds(e.arg(1));
      if (c.hi == 0) return bounds(e.arg(2));
      return hull(bounds(e.arg(1)), bounds(e.arg(2)));
    }
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe: return of_comparison(e, bounds);
    case Op::kAnd:
    case Op::kOr: {
      Interval r = bounds(e.arg(0));
      for (const Expr& arg : e.args().subspan(1)) {
        r = e.op() == Op::kAnd ? smaller(r, bounds(arg)) : larger(r, bounds(arg));
      }
      return r;
    }
  }
  return {};
}

int64_t compute_divisor(Expr e, const Facts& facts) {
  const Facts::State& state = facts.state();
  int64_t known = 1;
  if (!e.is_const()) {
    Interval i = facts.bounds(e);
    if (i.is_point() && i.lo > Interval::kNone) return i.lo < 0 ? -i.lo : i.lo;
    if (const auto* b = e.is_var() ? nullptr : state.find_bound(e)) known = b->divisor;
  }
  int64_t found = 1;
  switch (e.op()) {
    case Op::kConst: return e.value() == INT64_MIN ? 1 : e.value() < 0 ? -e.value() : e.value();
    case Op::kVar: {
      const Facts::State::Variable* v = state.find(e);
      known = v ? v->divisor : 1;
      if (auto at = state.equal.find(e); at != state.equal.end()) found = facts.known_divisor(at->second);
      break;
    }
    case Op::kMul:
      for (const Expr& factor : e.args()) {
        int64_t d = facts.known_divisor(factor);
        found = checked_mul(found, d).value_or(std::max(found, d));
      }
      break;
    case Op::kAdd:
    case Op::kMin:
    case Op::kMax:
    case Op::kMod:
    case Op::kSelect: {
      size_t first = e.op() == Op::kSelect ? 1 : 0;
      found = 0;
      for (const Expr& arg : e.args().subspan(first)) found = common(found, facts.known_divisor(arg));
      break;
    }
    case Op::kFloorDiv: {
      int64_t a = facts.known_divisor(e.arg(0));
      if (a == 0) return 0;
      if (e.arg(1).is_const() && e.arg(1).value() > 0 && a % e.arg(1).value() == 0)
        found = a / e.arg(1).value();
      break;
    }
    default: break;
  }
  if (found == 0 || known == 1) return found;
  // Both divide e, so their least common multiple does.
  return checked_mul(known / common(known, found), found).value_or(std::max(known, found));
}

Interval Bounds::operator()(Expr e) const {
  if (e.is_const()) return {e.value(), e.value()};
  thread_local Cache<Interval> by_intervals, by_proofs;
  Cache<Interval>& cache = proofs ? by_proofs : by_intervals;
  const Facts::State& state = facts.state();
  if (const Interval* known = cache.find(state.version, e)) return *known;
  Interval r = compute(e, *this);
  if (!e.is_var()) {
    if (const auto* b = state.find_bound(e)) r = intersect(r, b->range);
  }
  cache.add(state.version, e, r);
  return r;
}

}  // namespace

Interval Facts::bounds(Expr e) const { return Bounds{*this, true}(e); }

Interval interval_bounds(Expr e, const Facts& facts) { return Bounds{facts, false}(e); }

int64_t Facts::known_divisor(Expr e) const {
  thread_local Cache<int64_t> cache;
  if (const int64_t* known = cache.find(state_->version, e)) return *known;
  int64_t r = compute_divisor(e, *this);
  cache.add(state_->version, e, r);
  return r;
}

}  // namespace stridec::sym
