// Facts::prove: rewrites a condition to "e >= 0" and replaces e step by step by expressions that are never
// larger, until bounds decide.
#include <algorithm>
#include <unordered_set>

#include "compiler/sym/cache.h"
#include "compiler/sym/counterexample.h"
#include "compiler/sym/facts_state.h"
#include "compiler/sym/integer.h"
#include "compiler/sym/interval.h"

namespace stridec::sym {
namespace {

Answer opposite(Answer a) {
  return a == Answer::kYes ? Answer::kNo : a == Answer::kNo ? Answer::kYes : Answer::kUnknown;
}

class Prover {
 public:
  using Bounds = Interval (*)(Expr, const Facts&);
  Prover(const Facts& facts, Bounds bounds) : facts_(facts), state_(facts.state()), bounds_(bounds) {}

  bool not_negative(const Polynomial& p, int depth = 0) {
    Expr e = to_expr(p);
    Interval i = bounds(e);
    if (i.lo >= 0) return true;
    if (i.hi < 0 || depth >= kMaxDepth || refuted_ || sums_ == 0 || terms_ <= 0 || p.terms.empty())
      return false;
    if (!tried_.insert(e).second) return false;  // tried already: the same replacements in another order
    if (depth == 0) root_ = e;
    // A proof that is not a short one is likely not to exist, and the search for it takes milliseconds.
    if (--sums_ == kSumsAfterSamples) refuted_ = has_negative_sample(root_, facts_);
    if (refuted_) return false;
    terms_ -= count(p) * count(p);
    return by_index(e, depth) || by_operand(e, depth) || by_known_sum(p, depth) || by_variable(e, depth);
  }

 private:
  static constexpr int kMaxDepth = 12;
  int sums_ = 48;  // to try
  static constexpr int kSumsAfterSamples = 45;
  Expr root_;  // what is to be proved not negative
  bool refuted_ = false;
  // To look at in all these sums. A sum costs the square of their number, since each of its terms may be
  // replaced, and a replacement their number: sums of a hundred terms take milliseconds and not minutes, and
  // sums of up to 36 are not limited by this.
  int64_t terms_ = 65536;
  std::unordered_set<Expr, ExprHash> tried_;
  const Facts& facts_;
  const Facts::State& state_;
  Bounds bounds_;

  Interval bounds(Expr e) const { return bounds_(e, facts_); }
  static int64_t count(const Polynomial& p) { return static_cast<int64_t>(p.terms.size()); }

  // Variables that have others as coefficients.
  static std::vector<Expr> variables_in_products(const Polynomial& p) {
    std::vector<Expr> found;
    for (const Term& t : p.terms)
      if (t.base.op() == Op::kMul)
        for (const Expr& f : factors_of(t.base))
          if (f.is_var()) found.push_back(f);
    return found;
  }

  // Replaces `atom` in e, either exactly or by something that does not make e larger.
  bool with(const Linear& linear, Expr replacement, int depth) {
    auto moved = multiply(polynomial(linear.coefficient), polynomial(replacement));
    auto next = moved ? add_scaled(polynomial(linear.rest), *moved, 1) : std::nullopt;
    return next && not_negative(*next, depth + 1);
  }

  enum class Sign { kUp, kDown, kUnknown };
  Sign sign(Expr coefficient) const {
    Interval i = bounds(coefficient);
    return i.lo >= 0 ? Sign::kUp : i.hi <= 0 ? Sign::kDown : Sign::kUnknown;
  }

  // Replaces loop variables with symbolic extents, inner loops first.
  bool by_index(Expr e, int depth) {
    for (auto v = state_.variables.rbegin(); v != state_.variables.rend(); ++v) {
      if (!v->has_extent || !depends_on(e, v->name)) continue;
      auto linear = linear_in(e, v->name);
      if (!linear || linear->coefficient.is_const(0)) continue;
      Sign s = sign(linear->coefficient);
      if (s == Sign::kUnknown) continue;
      auto last = add_scaled(polynomial(v->extent), {{}, 1}, -1);
      if (!last) continue;
      return with(*linear, s == Sign::kUp ? Expr() : to_expr(*last), depth);
    }
    return false;
  }

  // Replaces a factor of some term that has symbolic bounds.
  bool by_operand(Expr e, int depth) {
    Polynomial p = polynomial(e);
    for (const Term& t : p.terms) {
      for (const Expr& f : factors_of(t.base)) {
        if (f.op() == Op::kVar || f.op() == Op::kAdd) continue;
        if ((terms_ -= count(p)) <= 0) return false;
        auto linear = linear_as_atom(p, f);
        if (!linear) continue;
        Sign s = sign(linear->coefficient);
        if (s == Sign::kUnknown) continue;
        if (replace(f, *linear, s, depth)) return true;
      }
    }
    return false;
  }

  // p == coefficient * atom + rest, for an atom that occurs as a factor; coefficient and rest may still
  // contain it nested in other atoms.
  std::optional<Linear> linear_as_atom(const Polynomial& p, Expr atom) const {
    Polynomial coefficient, rest{{}, p.constant};
    for (const Term& t : p.terms) {
      auto factors = factors_of(t.base);
      auto at = std::find(factors.begin(), factors.end(), atom);
      if (at == factors.end()) {
        rest.terms.push_back(t);
        continue;
      }
      std::vector<Expr> others(factors.begin(), factors.end());
      others.erase(others.begin() + (at - factors.begin()));
      if (std::find(others.begin(), others.end(), atom) != others.end()) return std::nullopt;
      auto more = add_scaled(coefficient, polynomial(product(others)), t.coefficient);
      if (!more) return std::nullopt;
      coefficient = *more;
    }
    return Linear{to_expr(coefficient), to_expr(rest)};
  }

  bool replace(Expr f, const Linear& linear, Sign s, int depth) {
    auto each = [&](std::span<const Expr> args, bool all) {
      for (const Expr& arg : args) {
        if (with(linear, arg, depth) != all) return !all;
      }
      return all;
    };
    switch (f.op()) {
      case Op::kMin: return each(f.args(), s == Sign::kUp);  // a minimum equals one operand, and is <= each
      case Op::kMax: return each(f.args(), s == Sign::kDown);
      case Op::kSelect: return each(f.args().subspan(1), true);
      case Op::kFloorDiv: return by_quotient(f, linear, s, depth);
      case Op::kMod: {
        Expr b = f.arg(1);
        if (b.is_const() || bounds(b).lo < 1) return false;
        return with(linear, s == Sign::kUp ? Expr() : b - 1, depth);
      }
      default: return false;
    }
  }

  // a - b + 1 <= b * floordiv(a, b) <= a for b >= 1: multiplies the sum by b, since only its sign matters. If
  // the quotient is compared with a constant, a itself decides.
  bool by_quotient(Expr f, const Linear& linear, Sign s, int depth) {
    Expr a = f.arg(0), b = f.arg(1);
    if (bounds(b).lo < 1) return false;
    if (linear.coefficient.is_const() && linear.rest.is_const()) {
      const int64_t c = linear.coefficient.value();
      if (c == INT64_MIN) return false;
      Checked k = checked_floordiv(linear.rest.value(), c > 0 ? c : -c);
      if (k && c > 0) k = checked_sub(0, *k);
      if (!k) return false;
      auto next = c > 0 ? quotient_at_least(polynomial(a), polynomial(b), *k)
                        : quotient_at_most(polynomial(a), polynomial(b), *k);
      return next && not_negative(*next, depth + 1);
    }
    auto least = add_scaled(polynomial(a), polynomial(b), -1);
    if (least) least = add_scaled(*least, {{}, 1}, 1);
    if (!least) return false;
    Polynomial bound = s == Sign::kUp ? *least : polynomial(a);
    auto rest = multiply(polynomial(linear.rest), polynomial(b));
    auto part = multiply(polynomial(linear.coefficient), bound);
    // rest is scaled too, which is valid because the whole sum is compared with 0.
    auto next = rest && part ? add_scaled(*rest, *part, 1) : std::nullopt;
    return next && not_negative(*next, depth + 1);
  }

  // Adds a multiple of a known sum so that a term cancels.
  bool by_known_sum(const Polynomial& p, int depth) {
    for (const Facts::State::Bound& b : state_.bounds) {
      if (!b.range.has_lo() && !b.range.has_hi()) continue;
      if (terms_ <= 0) return false;
      Polynomial known = polynomial(b.of);
      for (const Term& k : known.terms) {
        auto t =
            std::find_if(p.terms.begin(), p.terms.end(), [&](const Term& u) { return u.base == k.base; });
        if (t == p.terms.end() || t->coefficient == INT64_MIN || t->coefficient % k.coefficient != 0)
          continue;
        int64_t times = t->coefficient / k.coefficient;  // p == times*known + rest
        int64_t end = times > 0 ? b.range.lo : b.range.hi;
        if (end == Interval::kNone || end == Interval::kUnlimited) continue;
        terms_ -= count(p) + count(known);
        auto rest = add_scaled(p, known, -times);
        auto next = rest ? add_scaled(*rest, {{}, end}, times) : std::nullopt;
        if (next && next->terms.size() < p.terms.size() + known.terms.size() - 1 &&
            not_negative(*next, depth + 1))
          return true;
      }
    }
    return false;
  }

  // Uses constant bounds of symbols: 2*a*b - a - b >= 0 for a, b >= 1 needs them one by one.
  bool by_variable(Expr e, int depth) {
    const Polynomial p = polynomial(e);
    const std::vector<Expr> products = variables_in_products(p);
    if (products.empty()) return false;
    for (Expr v : free_vars(e)) {
      if (std::find(products.begin(), products.end(), v) == products.end()) continue;
      if ((terms_ -= count(p)) <= 0) return false;
      auto linear = linear_in(e, v);
      // bounds() has handled constant coefficients.
      if (!linear || linear->coefficient.is_const()) continue;
      Sign s = sign(linear->coefficient);
      Interval range = bounds(v);
      if (s == Sign::kUnknown || (s == Sign::kUp ? !range.has_lo() : !range.has_hi())) continue;
      if (with(*linear, s == Sign::kUp ? range.lo : range.hi, depth)) return true;
    }
    return false;
  }
};

bool not_negative(const std::optional<Polynomial>& p, const Facts& facts) {
  return p && Prover(facts, [](Expr e, const Facts& f) { return f.bounds(e); }).not_negative(*p);
}

// Proves a - b >= least.
bool at_least(Expr a, Expr b, int64_t least, const Facts& facts) {
  auto d = add_scaled(polynomial(a), polynomial(b), -1);
  if (d && least != 0) d = add_scaled(*d, {{}, least}, -1);
  return not_negative(d, facts);
}

bool differ(Expr a, Expr b, const Facts& facts) {
  if (at_least(a, b, 1, facts) || at_least(b, a, 1, facts)) return true;
  auto d = add_scaled(polynomial(a), polynomial(b), -1);
  if (!d || d->terms.empty()) return false;
  int64_t constant = std::exchange(d->constant, 0);
  int64_t step = facts.known_divisor(to_expr(*d));
  return step != 0 ? constant % step != 0 : constant != 0;
}

Answer decide(Expr c, const Facts& facts);

Answer connective(Expr c, const Facts& facts) {
  const Answer deciding = c.op() == Op::kAnd ? Answer::kNo : Answer::kYes;
  Answer all = opposite(deciding);
  for (const Expr& arg : c.args()) {
    Answer a = prove_directly(arg, facts);
    if (a == deciding) return deciding;
    if (a == Answer::kUnknown) all = Answer::kUnknown;
  }
  return all;
}

Answer decide(Expr c, const Facts& facts) {
  const std::vector<Expr>& known = facts.state().conditions;
  if (std::find(known.begin(), known.end(), c) != known.end()) return Answer::kYes;
  Interval i = facts.bounds(c);
  if (i.lo > 0 || i.hi < 0) return Answer::kYes;
  if (i.lo == 0 && i.hi == 0) return Answer::kNo;
  switch (c.op()) {
    case Op::kLe:
      if (at_least(c.arg(1), c.arg(0), 0, facts)) return Answer::kYes;
      if (at_least(c.arg(0), c.arg(1), 1, facts)) return Answer::kNo;
      break;
    case Op::kLt:
      if (at_least(c.arg(1), c.arg(0), 1, facts)) return Answer::kYes;
      if (at_least(c.arg(0), c.arg(1), 0, facts)) return Answer::kNo;
      break;
    case Op::kEq:
    case Op::kNe: {
      const Answer equal = c.op() == Op::kEq ? Answer::kYes : Answer::kNo;
      if (differ(c.arg(0), c.arg(1), facts)) return opposite(equal);
      if (at_least(c.arg(0), c.arg(1), 0, facts) && at_least(c.arg(1), c.arg(0), 0, facts)) return equal;
      break;
    }
    case Op::kAnd:
    case Op::kOr: return connective(c, facts);
    case Op::kSelect: {
      Answer a = prove_directly(c.arg(1), facts);
      return a == prove_directly(c.arg(2), facts) ? a : Answer::kUnknown;
    }
    default: break;
  }
  if (c.is_condition() && !known.empty()) {
    Expr inverse = logical_not(c);
    if (std::find(known.begin(), known.end(), inverse) != known.end()) return Answer::kNo;
  }
  return Answer::kUnknown;
}

}  // namespace

bool not_negative_by_intervals(const Polynomial& p, const Facts& facts) {
  return Prover(facts, interval_bounds).not_negative(p);
}

Answer prove_directly(Expr condition, const Facts& facts) {
  if (condition.is_const()) return condition.value() != 0 ? Answer::kYes : Answer::kNo;
  thread_local Cache<Answer> cache;
  uint64_t version = facts.state().version;
  if (const Answer* known = cache.find(version, condition)) return *known;
  Answer a = decide(condition, facts);
  cache.add(version, condition, a);
  return a;
}

Answer Facts::prove(Expr condition) const {
  condition = substitute(condition, state_->equal);
  Answer a = prove_directly(condition, *this);
  if (a != Answer::kUnknown) return a;
  Expr simpler = simplify(condition, *this);
  return simpler == condition ? a : prove_directly(simpler, *this);
}

}  // namespace stridec::sym
