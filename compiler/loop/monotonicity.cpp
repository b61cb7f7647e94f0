#include "compiler/loop/monotonicity.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace stridec::loop {
namespace {

using Found = std::optional<Monotonicity>;

class Trends {
 public:
  Trends(const Nest& nest, sym::Expr var, const std::function<const Stmt*(ValueId)>& definition)
      : nest_(nest), var_(var), definition_(definition) {}

  Found of(ValueId value) {
    const auto [at, fresh] = known_.try_emplace(value.value);
    if (!fresh) return at->second;
    const Found found = made(value);
    return known_[value.value] = found;
  }

 private:
  Found made(ValueId value) {
    const DType dtype = nest_.values[value.value].dtype;
    const Stmt* by = definition_(value);
    if (!by) return is_float(dtype) ? std::nullopt : Found(Monotonicity{});  // a float may be NaN
    if (const auto* constant = std::get_if<Constant>(&by->node)) {
      if (!is_float(dtype)) return Monotonicity{};
      if (std::isnan(constant->value.f)) return std::nullopt;
      return Monotonicity{.low = constant->value.f, .high = constant->value.f};
    }
    if (const auto* index = std::get_if<IndexValue>(&by->node)) return of_index(index->expr);
    const auto* let = std::get_if<Let>(&by->node);
    return let ? of_let(*let, dtype) : std::nullopt;
  }

  static Monotonicity flipped(const Monotonicity& trend) {
    return {.falls = trend.rises, .rises = trend.falls, .low = -trend.high, .high = -trend.low};
  }
  static Found joined(const Found& a, const Found& b) {
    if (!a || !b) return std::nullopt;
    return Monotonicity{.falls = a->falls || b->falls,
                        .rises = a->rises || b->rises,
                        .low = std::min(a->low, b->low),
                        .high = std::max(a->high, b->high)};
  }

  Found of_index(sym::Expr e) const {
    if (!sym::depends_on(e, var_)) return Monotonicity{};
    switch (e.op()) {
      case sym::Op::kLe:
      case sym::Op::kLt: return of_index(e.arg(1) - e.arg(0));
      case sym::Op::kAnd:
      case sym::Op::kOr: {
        Found all = Monotonicity{};
        for (sym::Expr arg : e.args()) all = joined(all, of_index(arg));
        return all;
      }
      default: break;
    }
    const auto line = sym::linear_in(e, var_);
    const auto step = line ? sym::as_const(line->coefficient) : std::nullopt;
    if (!step) return std::nullopt;
    return Monotonicity{.falls = *step < 0, .rises = *step > 0};
  }

  Found of_let(const Let& let, DType to) {
    const DType from = nest_.values[let.args.back().value].dtype;
    const auto arg = [&](size_t i) { return of(let.args[i]); };
    // An operation on constant integers has a constant result, even if it wraps.
    const bool stays = !is_float(to) && std::all_of(let.args.begin(), let.args.end(), [&](ValueId id) {
      const Found found = of(id);
      return found && !found->falls && !found->rises;
    });
    if (stays) return Monotonicity{};
    switch (let.op) {
      case ScalarOp::kCast:
      case ScalarOp::kCastSat: {
        if (!is_float(from) || !is_float(to) || byte_size(to) < 2) return std::nullopt;
        Found out = arg(0);
        if (!out) return out;
        constexpr double kHeldByAll = 65504;  // beyond it the value may become an infinity
        if (out->high > kHeldByAll) out->high = HUGE_VAL;
        if (out->low < -kHeldByAll) out->low = -HUGE_VAL;
        return out;
      }
      case ScalarOp::kAdd: {
        if (!is_float(to)) return std::nullopt;  // an integer may wrap
        const Found a = arg(0), b = arg(1);
        Found out = joined(a, b);
        if (!out) return out;
        out->low = a->low + b->low;
        out->high = a->high + b->high;
        // Opposite infinities would add up to NaN.
        const bool meets = (std::isinf(a->low) && a->low < 0 && std::isinf(b->high) && b->high > 0) ||
                           (std::isinf(b->low) && b->low < 0 && std::isinf(a->high) && a->high > 0);
        return meets || std::isnan(out->low) || std::isnan(out->high) ? std::nullopt : out;
      }
      case ScalarOp::kLe:
      case ScalarOp::kLt: {
        if (is_float(from)) return std::nullopt;
        const Found a = arg(0), b = arg(1);
        return a ? joined(flipped(*a), b) : std::nullopt;
      }
      case ScalarOp::kAnd:
      case ScalarOp::kOr: return is_bool(to) ? joined(arg(0), arg(1)) : std::nullopt;
      case ScalarOp::kNot: {
        const Found a = arg(0);
        return a && is_bool(to) ? Found(flipped(*a)) : std::nullopt;
      }
      case ScalarOp::kMax:
      case ScalarOp::kMin: return joined(arg(0), arg(1));
      case ScalarOp::kSelect: return of_select(let);
      default: return std::nullopt;
    }
  }

  // For two values that are each constant along the index.
  Found of_select(const Let& let) {
    const Found condition = of(let.args[0]), shown = of(let.args[1]), hidden = of(let.args[2]);
    const Found both = joined(shown, hidden);
    if (!condition || !both || both->falls || both->rises) return std::nullopt;
    Monotonicity out = shown->low >= hidden->high ? *condition : flipped(*condition);
    if (shown->low < hidden->high && shown->high > hidden->low) return std::nullopt;
    // It is unknown which of two integers is greater.
    if (!is_float(nest_.values[let.result.value].dtype) && (condition->falls || condition->rises))
      return std::nullopt;
    out.low = both->low;
    out.high = both->high;
    return out;
  }

  const Nest& nest_;
  const sym::Expr var_;
  const std::function<const Stmt*(ValueId)>& definition_;
  std::unordered_map<int32_t, Found> known_;
};

}  // namespace

std::optional<Monotonicity> monotonicity_of(const Nest& nest, ValueId value, sym::Expr var,
                                            const std::function<const Stmt*(ValueId)>& definition) {
  return Trends(nest, var, definition).of(value);
}

}  // namespace stridec::loop
