// Canonical min, max, comparisons, conditions and select.
#include <algorithm>

#include "compiler/sym/integer.h"
#include "compiler/sym/polynomial.h"

namespace stridec::sym {
namespace {

Expr as_condition(Expr e) { return e.is_condition() ? e : ne(e, 0); }

std::optional<Polynomial> difference(Expr a, Expr b) {
  auto d = add_scaled(polynomial(a), polynomial(b), -1);
  if (d) join_divisions(*d);
  return d;
}

void sort_unique(std::vector<Expr>& args) {
  std::sort(args.begin(), args.end(), ExprLess{});
  args.erase(std::unique(args.begin(), args.end()), args.end());
}

// Merges operands of nested nodes of the same operation into one list.
std::vector<Expr> flattened(Op op, std::span<const Expr> args) {
  std::vector<Expr> flat;
  for (const Expr& arg : args) {
    if (arg.op() == op) {
      flat.insert(flat.end(), arg.args().begin(), arg.args().end());
    } else {
      flat.push_back(arg);
    }
  }
  return flat;
}

bool has_operand(const Expr& node, Op op, Expr wanted) {
  return node.op() == op && std::find(node.args().begin(), node.args().end(), wanted) != node.args().end();
}

Expr extremum(Op op, std::span<const Expr> given) {
  const Op dual = op == Op::kMin ? Op::kMax : Op::kMin;
  std::vector<Expr> args = flattened(op, given);
  sort_unique(args);
  while (args.size() > 1 && args[args.size() - 2].is_const()) {  // constants are last, in ascending order
    args.erase(op == Op::kMin ? args.end() - 1 : args.end() - 2);
  }
  if (args.size() > 1 && args.back().is_const()) {
    const int64_t c = args.back().value();
    // A condition is always on the same side of such a constant.
    const bool above = op == Op::kMin ? c >= 1 : c <= 0;
    auto conditions = std::count_if(args.begin(), args.end() - 1, [](Expr e) { return e.is_condition(); });
    if (c == (op == Op::kMin ? INT64_MAX : INT64_MIN) || (conditions != 0 && above)) {
      args.pop_back();
    } else if (conditions != 0) {
      std::erase_if(args, [](Expr e) { return e.is_condition() && !e.is_const(); });
    }
  }
  // Of two operands whose difference is constant one is redundant. An operand max(a, ..) never determines a
  // minimum with a.
  std::vector<bool> dropped(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    for (size_t j = i + 1; j < args.size() && !dropped[i]; ++j) {
      if (dropped[j]) continue;
      if (has_operand(args[j], dual, args[i])) {
        dropped[j] = true;
      } else if (has_operand(args[i], dual, args[j])) {
        dropped[i] = true;
      } else if (auto d = difference(args[i], args[j]); d && d->is_constant()) {
        dropped[(d->constant < 0) == (op == Op::kMin) ? j : i] = true;
      }
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!dropped[i]) args[kept++] = args[i];
  }
  args.resize(kept);
  if (std::all_of(args.begin(), args.end(), [](Expr e) { return e.is_condition(); })) {
    return op == Op::kMin ? logical_and(args) : logical_or(args);
  }
  return args.size() == 1 ? args[0] : intern(op, args);
}

// p == left - right + constant with positive terms on both sides.
struct Sides {
  Polynomial left, right;
};
Sides sides(const Polynomial& p) {
  Sides s;
  for (const Term& t : p.terms) {
    if (t.coefficient > 0) {
      s.left.terms.push_back(t);
    } else {
      s.right.terms.push_back({t.base, t.coefficient == INT64_MIN ? INT64_MAX : -t.coefficient});
    }
  }
  return s;
}

bool fits(const Polynomial& p) {
  return p.constant != INT64_MIN && std::all_of(p.terms.begin(), p.terms.end(),
                                                [](const Term& t) { return t.coefficient != INT64_MIN; });
}

// The only term of p, if it is a condition with coefficient 1.
const Expr* lone_condition(const Polynomial& p) {
  return p.terms.size() == 1 && p.terms[0].coefficient == 1 && p.terms[0].base.is_condition()
             ? &p.terms[0].base
             : nullptr;
}

// The canonical form of d <= 0. Of the equivalent forms L <= R+m and L < R+(m+1), it is the one with the
// constant of smaller magnitude; the constant is written on the side where it is positive.
std::optional<Expr> at_most_zero(Polynomial d) {
  if (d.is_constant()) return Expr(d.constant <= 0);
  if (!fits(d)) return std::nullopt;
  int64_t g = static_cast<int64_t>(content(d));
  for (Term& t : d.terms) t.coefficient /= g;
  int64_t m = floor_div(-d.constant, g);  // L - R <= m
  Sides s = sides(d);
  if (const Expr* c = lone_condition(s.left); c && s.right.terms.empty()) {
    return m < 0 ? Expr(0) : m > 0 ? Expr(1) : logical_not(*c);
  }
  if (const Expr* c = lone_condition(s.right); c && s.left.terms.empty()) {
    return m >= 0 ? Expr(1) : m < -1 ? Expr(0) : *c;
  }
  bool strict = m < 0 && !s.left.terms.empty() && !s.right.terms.empty();
  if (strict) ++m;
  if (m == INT64_MIN) return std::nullopt;
  if (m > 0 || s.right.terms.empty()) {
    s.right.constant = m;
  } else {
    s.left.constant = -m;
  }
  return intern(strict ? Op::kLt : Op::kLe, to_expr(s.left), to_expr(s.right));
}

Expr equality(Op op, Expr a, Expr b) {
  const bool equal = op == Op::kEq;
  if (a == b) return Expr(equal);
  auto d = difference(a, b);
  if (!d || !fits(*d)) return compare(a, b) < 0 ? intern(op, a, b) : intern(op, b, a);
  if (d->is_constant()) return Expr((d->constant == 0) == equal);
  int64_t g = static_cast<int64_t>(content(*d));
  if (d->constant % g != 0) return Expr(!equal);
  const int64_t sign = d->terms[0].coefficient < 0 ? -1 : 1;
  for (Term& t : d->terms) t.coefficient = t.coefficient / g * sign;
  int64_t m = -(d->constant / g) * sign;  // L - R == m
  Sides s = sides(*d);
  if (const Expr* c = lone_condition(s.left); c && s.right.terms.empty()) {
    if (m != 0 && m != 1) return Expr(!equal);
    return (m == 1) == equal ? *c : logical_not(*c);
  }
  if (m > 0 || s.right.terms.empty()) {
    s.right.constant = m;
  } else {
    s.left.constant = -m;
  }
  return intern(op, to_expr(s.left), to_expr(s.right));
}

// Whether `args` contains an operand and its negation.
bool has_opposites(const std::vector<Expr>& args) {
  for (const Expr& arg : args) {
    if (arg.op() == Op::kAnd || arg.op() == Op::kOr || arg.op() == Op::kSelect) continue;
    if (std::binary_search(args.begin(), args.end(), logical_not(arg), ExprLess{})) return true;
  }
  return false;
}

Expr connective(Op op, std::span<const Expr> given) {
  const bool conjunction = op == Op::kAnd;
  const Op dual = conjunction ? Op::kOr : Op::kAnd;
  std::vector<Expr> args(given.begin(), given.end());
  for (Expr& arg : args) arg = as_condition(arg);
  args = flattened(op, args);
  std::erase_if(args, [&](Expr e) { return e.is_const(conjunction ? 1 : 0); });
  sort_unique(args);
  for (const Expr& arg : args) {
    if (arg.is_const()) return Expr(!conjunction);
  }
  std::vector<Expr> kept;
  for (const Expr& arg : args) {  // a && (a || b) is a
    bool absorbed =
        std::any_of(args.begin(), args.end(), [&](Expr other) { return has_operand(arg, dual, other); });
    if (!absorbed) kept.push_back(arg);
  }
  if (kept.empty()) return Expr(conjunction);
  if (kept.size() == 1) return kept[0];
  if (has_opposites(kept)) return Expr(!conjunction);
  return intern(op, kept);
}

}  // namespace

Expr min(Expr a, Expr b) {
  const Expr args[] = {a, b};
  return extremum(Op::kMin, args);
}
Expr max(Expr a, Expr b) {
  const Expr args[] = {a, b};
  return extremum(Op::kMax, args);
}
Expr min(std::span<const Expr> args) { return extremum(Op::kMin, args); }
Expr max(std::span<const Expr> args) { return extremum(Op::kMax, args); }

Expr eq(Expr a, Expr b) { return equality(Op::kEq, a, b); }
Expr ne(Expr a, Expr b) { return equality(Op::kNe, a, b); }

Expr le(Expr a, Expr b) {
  auto d = difference(a, b);
  auto r = d ? at_most_zero(*std::move(d)) : std::nullopt;
  return r ? *r : intern(Op::kLe, a, b);
}
Expr lt(Expr a, Expr b) {
  auto d = difference(a, b);
  if (d) d = add_scaled(*d, {{}, 1}, 1);
  auto r = d ? at_most_zero(*std::move(d)) : std::nullopt;
  return r ? *r : intern(Op::kLt, a, b);
}
Expr gt(Expr a, Expr b) { return lt(b, a); }
Expr ge(Expr a, Expr b) { return le(b, a); }

Expr logical_and(std::span<const Expr> args) { return connective(Op::kAnd, args); }
Expr logical_or(std::span<const Expr> args) { return connective(Op::kOr, args); }
Expr logical_and(Expr a, Expr b) {
  const Expr args[] = {a, b};
  return connective(Op::kAnd, args);
}
Expr logical_or(Expr a, Expr b) {
  const Expr args[] = {a, b};
  return connective(Op::kOr, args);
}

Expr logical_not(Expr a) {
  switch (a.op()) {
    case Op::kConst: return Expr(a.value() == 0);
    case Op::kEq: return intern(Op::kNe, a.args());
    case Op::kNe: return intern(Op::kEq, a.args());
    case Op::kLt: return le(a.arg(1), a.arg(0));
    case Op::kLe: return lt(a.arg(1), a.arg(0));
    case Op::kAnd:
    case Op::kOr: {
      std::vector<Expr> args(a.args().begin(), a.args().end());
      for (Expr& arg : args) arg = logical_not(arg);
      return connective(a.op() == Op::kAnd ? Op::kOr : Op::kAnd, args);
    }
    case Op::kSelect:
      if (a.is_condition()) return select(a.arg(0), logical_not(a.arg(1)), logical_not(a.arg(2)));
      return eq(a, 0);
    default: return eq(a, 0);
  }
}

Expr select(Expr condition, Expr then, Expr otherwise) {
  condition = as_condition(condition);
  if (condition.is_const()) return condition.value() != 0 ? then : otherwise;
  Expr opposite = logical_not(condition);
  if (compare(opposite, condition) < 0) {
    std::swap(condition, opposite);
    std::swap(then, otherwise);
  }
  if (then.op() == Op::kSelect && then.arg(0) == condition) then = then.arg(1);
  if (otherwise.op() == Op::kSelect && otherwise.arg(0) == condition) otherwise = otherwise.arg(2);
  if (then == otherwise) return then;
  if (then.is_condition() && otherwise.is_condition()) {
    if (then.is_const())
      return then.value() ? logical_or(condition, otherwise) : logical_and(opposite, otherwise);
    if (otherwise.is_const())
      return otherwise.value() ? logical_or(opposite, then) : logical_and(condition, then);
  }
  const Expr args[] = {condition, then, otherwise};
  return intern(Op::kSelect, args);
}

}  // namespace stridec::sym
