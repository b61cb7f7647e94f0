// simplify(): one bottom-up walk, repeated until nothing changes. It applies the rules of rules.h, and the
// rewrites below that inspect all terms of a sum at once. All preserve the value wherever the facts hold.
#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/sym/cache.h"
#include "compiler/sym/facts_state.h"
#include "compiler/sym/integer.h"
#include "compiler/sym/rebuild.h"
#include "compiler/sym/rule_set.h"
#include "compiler/sym/sum_rewrites.h"

namespace stridec::sym {
namespace {

constexpr int kMaxRounds = 8;       // rewrites per node; real ones end after one or two
constexpr int kMaxAssumptions = 3;  // nested selects whose sides are simplified under their condition
constexpr size_t kMaxJoint = 6;     // operands of && and || that are considered together

// A rewrite may distribute an operation over operands, but must not blow up.
bool acceptable(Expr from, Expr to) { return to.size() <= 4 * uint64_t{from.size()} + 32; }

bool share_variables(Expr a, Expr b) { return (a.node()->variables & b.node()->variables) != 0; }

class Simplifier {
 public:
  Simplifier(const Facts& facts, int assumptions) : facts_(facts), assumptions_(assumptions) {}

  Expr visit(Expr e) {
    if (e.is_const()) return e;
    if (auto at = done_.find(e); at != done_.end()) return at->second;
    Expr result = e;
    try {
      for (int round = 0; round < kMaxRounds; ++round) {
        Expr next = step(result);
        if (next == result) break;
        result = next;
      }
    } catch (const Error&) {  // a constant overflowed 64 bits
      result = e;
    }
    done_.insert_or_assign(e, result);
    if (result != e) done_.insert_or_assign(result, result);
    return result;
  }

 private:
  Expr step(Expr e) {
    Interval i = facts_.bounds(e);
    if (i.is_point()) return i.lo;
    if (e.is_var() || e.is_const()) return e;
    std::vector<Expr> args(e.args().begin(), e.args().end());
    bool changed = false;
    for (size_t k = 0; k < args.size(); ++k) {
      Expr simpler = e.op() == Op::kSelect && k > 0 ? side(args[0], args[k], k == 1) : visit(args[k]);
      changed |= simpler != args[k];
      args[k] = simpler;
    }
    if (changed) return rebuild(e.op(), args);
    if (auto r = by_code(e); r && *r != e && acceptable(e, *r)) return *r;
    for (const Rule* rule : rules_for(e.op())) {
      if (auto r = apply_rule(*rule, e, facts_); r && *r != e && acceptable(e, *r)) return *r;
    }
    return e;
  }

  std::optional<Expr> by_code(Expr e) {
    switch (e.op()) {
      case Op::kFloorDiv:
      case Op::kMod: {
        if (auto r = split_division(e, facts_)) return r;
        return narrow_division(e, facts_);
      }
      case Op::kAdd: {
        if (auto r = pair_extrema(e)) return r;
        if (auto r = absorb_into_extremum(e)) return r;
        return join_digits(e, facts_);
      }
      case Op::kMin:
      case Op::kMax: return share_terms(e);
      case Op::kEq:
      case Op::kNe:
      case Op::kLt:
      case Op::kLe: {
        Answer a = prove_directly(e, facts_);
        if (a != Answer::kUnknown) return Expr(a == Answer::kYes);
        if (auto r = cancel_positive_factor(e, facts_)) return r;
        return drop_small_part(e, facts_);
      }
      case Op::kAnd:
      case Op::kOr: return connective(e);
      default: return std::nullopt;
    }
  }

  // Simplifies one side of a select under its condition.
  Expr side(Expr condition, Expr e, bool holds) {
    if (e.is_const()) return e;
    if (assumptions_ >= kMaxAssumptions || !share_variables(condition, e)) return visit(e);
    Facts inside = facts_.with(holds ? condition : logical_not(condition));
    if (inside.contradictory()) return visit(e);
    Expr replaced = substitute(e, inside.state().equal);
    return Simplifier(inside, assumptions_ + 1).visit(replaced);
  }

  // Whether e has no division by a possibly zero divisor: an operand without a value must not replace one
  // that decides.
  bool has_value(Expr e) {
    if (e.op() == Op::kFloorDiv || e.op() == Op::kMod) {
      if (facts_.bounds(e.arg(1)).contains(0)) return false;
    }
    if (e.args().empty()) return true;
    if (auto at = total_.find(e); at != total_.end()) return at->second;
    bool all = true;
    for (const Expr& arg : e.args()) all = all && has_value(arg);
    total_.emplace(e, all);
    return all;
  }

  // Drops an operand that the others imply: a <= 4 && a <= 9 is a <= 4.
  std::optional<Expr> connective(Expr e) {
    Answer a = prove_directly(e, facts_);
    if (a != Answer::kUnknown) return Expr(a == Answer::kYes);
    if (e.args().size() > kMaxJoint || assumptions_ >= kMaxAssumptions || !has_value(e)) return std::nullopt;
    const bool conjunction = e.op() == Op::kAnd;
    std::vector<Expr> args(e.args().begin(), e.args().end());
    for (size_t k = args.size(); k-- > 0;) {
      Facts inside = facts_;
      bool related = false;
      for (size_t other = 0; other < args.size(); ++other) {
        if (other == k || !share_variables(args[other], args[k])) continue;
        inside.assume(conjunction ? args[other] : logical_not(args[other]));
        related = true;
      }
      if (!related) continue;
      if (inside.contradictory()) continue;
      Answer rest = prove_directly(substitute(args[k], inside.state().equal), inside);
      if (rest == Answer::kUnknown) continue;
      if ((rest == Answer::kYes) != conjunction) return Expr(!conjunction);
      args.erase(args.begin() + static_cast<ptrdiff_t>(k));
    }
    return rebuild(e.op(), args);
  }

  const Facts& facts_;
  int assumptions_;
  Substitution done_;
  std::unordered_map<Expr, bool, ExprHash> total_;
};

}  // namespace

Expr simplify(Expr e, const Facts& facts) {
  if (e.is_const()) return e;
  thread_local Cache<Expr> cache;
  uint64_t version = facts.state().version;
  if (const Expr* known = cache.find(version, e)) return *known;
  Expr result = e;
  try {
    result = substitute(e, facts.state().equal);
  } catch (const Error&) {
  }
  result = Simplifier(facts, 0).visit(result);
  cache.add(version, e, result);
  return result;
}

Expr simplify(Expr e) { return simplify(e, Facts()); }

}  // namespace stridec::sym
