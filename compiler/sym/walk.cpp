#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "compiler/base/check.h"
#include "compiler/sym/cache.h"
#include "compiler/sym/integer.h"
#include "compiler/sym/polynomial.h"
#include "compiler/sym/rebuild.h"

namespace stridec::sym {

Expr rebuild(Op op, std::span<const Expr> args) {
  switch (op) {
    case Op::kAdd: return sum(args);
    case Op::kMul: return product(args);
    case Op::kFloorDiv: return floordiv(args[0], args[1]);
    case Op::kMod: return mod(args[0], args[1]);
    case Op::kMin: return min(args);
    case Op::kMax: return max(args);
    case Op::kEq: return eq(args[0], args[1]);
    case Op::kNe: return ne(args[0], args[1]);
    case Op::kLt: return lt(args[0], args[1]);
    case Op::kLe: return le(args[0], args[1]);
    case Op::kAnd: return logical_and(args);
    case Op::kOr: return logical_or(args);
    case Op::kSelect: return select(args[0], args[1], args[2]);
    case Op::kConst:
    case Op::kVar: break;
  }
  STRIDEC_CHECK(false, "a leaf has no operands");
}

std::optional<int64_t> apply(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::kAdd: return checked_add(a, b);
    case Op::kMul: return checked_mul(a, b);
    case Op::kFloorDiv: return checked_floordiv(a, b);
    case Op::kMod: return checked_mod(a, b);
    case Op::kMin: return std::min(a, b);
    case Op::kMax: return std::max(a, b);
    case Op::kEq: return a == b;
    case Op::kNe: return a != b;
    case Op::kLt: return a < b;
    case Op::kLe: return a <= b;
    default: return std::nullopt;
  }
}

namespace {

struct Substituter {
  const Substitution& replacements;
  uint64_t mask = 0;
  Substitution done;

  Expr visit(Expr e) {
    if ((e.node()->variables & mask) == 0) return e;
    if (e.is_var()) {
      auto at = replacements.find(e);
      return at == replacements.end() ? e : at->second;
    }
    if (auto at = done.find(e); at != done.end()) return at->second;
    std::vector<Expr> args(e.args().begin(), e.args().end());
    bool changed = false;
    for (Expr& arg : args) {
      Expr replaced = visit(arg);
      changed |= replaced != arg;
      arg = replaced;
    }
    Expr result = changed ? rebuild(e.op(), args) : e;
    done.emplace(e, result);
    return result;
  }
};

struct Evaluator {
  const std::function<std::optional<int64_t>(Expr)>& lookup;
  std::unordered_map<Expr, Checked, ExprHash> done;

  Checked visit(Expr e) {
    if (e.is_const()) return e.value();
    if (e.is_var()) return lookup(e);
    if (e.size() < 16) return compute(e);
    if (auto at = done.find(e); at != done.end()) return at->second;
    Checked result = compute(e);
    done.emplace(e, result);
    return result;
  }

  Checked compute(Expr e) {
    switch (e.op()) {
      case Op::kAnd:
      case Op::kOr: {
        const int64_t deciding = e.op() == Op::kOr;
        bool known = true;
        for (const Expr& arg : e.args()) {
          Checked v = visit(arg);
          if (v && (*v != 0) == deciding) return deciding;
          known &= v.has_value();
        }
        return known ? Checked(1 - deciding) : std::nullopt;
      }
      case Op::kSelect: {
        Checked c = visit(e.arg(0));
        return c ? visit(e.arg(*c != 0 ? 1 : 2)) : std::nullopt;
      }
      default: break;
    }
    Checked acc = visit(e.arg(0));
    for (size_t i = 1; i < e.args().size() && acc; ++i) {
      Checked v = visit(e.arg(i));
      acc = v ? apply(e.op(), *acc, *v) : std::nullopt;
    }
    return acc;
  }
};

}  // namespace

Expr substitute(Expr e, const Substitution& replacements) {
  Substituter s{replacements, 0, {}};
  for (const auto& [variable, replacement] : replacements) s.mask |= variable.node()->variables;
  return s.visit(e);
}

Expr substitute(Expr e, Expr variable, Expr replacement) {
  if (!depends_on(e, variable)) return e;
  return substitute(e, Substitution{{variable, replacement}});
}

void for_each_node(Expr e, const std::function<void(Expr)>& visit) {
  std::unordered_set<const Node*> seen;
  auto walk = [&](auto& self, Expr at) -> void {
    if (!seen.insert(at.node()).second) return;
    for (const Expr& arg : at.args()) self(self, arg);
    visit(at);
  };
  walk(walk, e);
}

// Proofs ask for the variables of sums whose terms they have asked about before.
std::vector<Expr> free_vars(Expr e) {
  if (e.is_var()) return {e};
  if (e.node()->variables == 0) return {};
  thread_local Cache<std::vector<Expr>> cache;
  if (const std::vector<Expr>* known = cache.find(0, e)) return *known;
  std::vector<Expr> found;
  for (const Expr& arg : e.args()) {
    const std::vector<Expr> more = free_vars(arg), before = std::move(found);
    found.clear();
    std::set_union(before.begin(), before.end(), more.begin(), more.end(), std::back_inserter(found),
                   ExprLess{});
  }
  cache.add(0, e, found);
  return found;
}

bool depends_on(Expr e, Expr variable) {
  if ((e.node()->variables & variable.node()->variables) == 0) return false;
  if (e == variable) return true;
  if (e.size() >= 16) {
    STRIDEC_CHECK(variable.is_var());
    const std::vector<Expr> all = free_vars(e);
    return std::binary_search(all.begin(), all.end(), variable, ExprLess{});
  }
  return std::any_of(e.args().begin(), e.args().end(), [&](Expr arg) { return depends_on(arg, variable); });
}

std::optional<int64_t> evaluate(Expr e, const std::function<std::optional<int64_t>(Expr)>& lookup) {
  return Evaluator{lookup, {}}.visit(e);
}

std::optional<Linear> linear_in(Expr e, Expr v) {
  if (!depends_on(e, v)) return Linear{0, e};
  if (e == v) return Linear{1, 0};
  if (e.op() == Op::kAdd) {
    std::vector<Expr> coefficients, rest;
    for (const Expr& term : e.args()) {
      auto part = linear_in(term, v);
      if (!part) return std::nullopt;
      coefficients.push_back(part->coefficient);
      rest.push_back(part->rest);
    }
    return Linear{sum(coefficients), sum(rest)};
  }
  if (e.op() == Op::kMul) {
    Expr others(1);
    std::optional<Linear> inner;
    for (const Expr& factor : e.args()) {
      if (!depends_on(factor, v)) {
        others = others * factor;
      } else if (inner || !(inner = linear_in(factor, v))) {
        return std::nullopt;
      }
    }
    return Linear{inner->coefficient * others, inner->rest * others};
  }
  return std::nullopt;
}

}  // namespace stridec::sym
