#include "compiler/loop/demand.h"

#include <algorithm>
#include <cmath>

namespace stridec::loop {
namespace {

using sym::Expr;

constexpr size_t kMostDemands = 16;

bool sure(const DemandRules& rules, Expr condition) { return rules.facts.holds(condition); }

Demand with(const Demand& demand, std::optional<Expr> least, std::optional<Expr> most) {
  Demand out = demand;
  out.least = least, out.most = most;
  return out;
}

Demand flipped(const Demand& demand) {
  const auto minus = [](std::optional<Expr> e) { return e ? std::optional(-*e) : e; };
  return with(demand, minus(demand.most), minus(demand.least));
}

// The demand on a if the demand is on a + c, for every possible c.
Demand less(const Demand& demand, const Known& c) {
  return with(demand, demand.least ? std::optional(*demand.least - c.least) : std::nullopt,
              demand.most ? std::optional(*demand.most - c.most) : std::nullopt);
}

// The demand on a if the demand is on a * c, for every possible c >= 0.
std::optional<Demand> divided(const DemandRules& rules, const Demand& demand, const Known& c) {
  if (c.least == c.most && sure(rules, sym::ge(c.least, 1)))
    return with(demand, demand.least ? std::optional(sym::ceildiv(*demand.least, c.least)) : std::nullopt,
                demand.most ? std::optional(sym::floordiv(*demand.most, c.least)) : std::nullopt);
  if (!sure(rules, sym::ge(c.least, 0))) return std::nullopt;
  std::optional<Expr> least, most;
  if (demand.least) {
    if (sure(rules, sym::le(*demand.least, 0)))
      least = Expr(0);
    else if (sure(rules, sym::ge(c.least, 1)))
      least = sym::max(*demand.least, 0);
    else
      return std::nullopt;
  }
  if (demand.most) {
    if (!sure(rules, sym::ge(*demand.most, 0))) return std::nullopt;
    most = sym::floordiv(*demand.most, sym::max(c.most, 1));
  }
  return with(demand, least, most);
}

// The demand on a if the demand is on a / c (integers round towards zero).
std::optional<Demand> times(const DemandRules& rules, const Demand& demand, const Known& c, bool floats) {
  if (c.number && *c.number > 0 && *c.number < 1) {  // bounds of 0 stay, others shrink by the factor
    const Expr parts = static_cast<int64_t>(std::min(1e9, std::ceil(1 / *c.number)));
    return divided(rules, demand, {parts, parts, std::nullopt});
  }
  if (!sure(rules, sym::ge(c.least, 1))) return std::nullopt;
  const bool positive = demand.least && sure(rules, sym::ge(*demand.least, 0));
  std::optional<Expr> least, most;
  if (demand.least) least = *demand.least * (positive ? c.most : c.least);
  if (demand.most) {
    if (!sure(rules, sym::ge(*demand.most, 0))) return std::nullopt;
    most = *demand.most * c.least + (floats ? Expr(0) : c.least - 1);
  }
  return with(demand, least, most);
}

// If both arguments are unknown, each gets half of the range.
std::optional<Demand> half(const DemandRules& rules, const Demand& demand) {
  std::optional<Expr> least, most;
  if (demand.least) least = sym::ceildiv(*demand.least, 2);
  if (demand.most) most = sym::floordiv(*demand.most, 2);
  if (least && sure(rules, sym::le(*least, 0)) && (!most || sure(rules, sym::ge(*most, 0)))) least = Expr(0);
  return with(demand, least, most);
}

// The demand on an argument whose result is in [0, last] for every argument.
std::optional<Demand> bounded(const DemandRules& rules, const Demand& demand, Expr last) {
  const bool met = (!demand.least || sure(rules, sym::le(*demand.least, 0))) &&
                   (!demand.most || sure(rules, sym::le(last, *demand.most)));
  Demand out = with(demand, demand.least ? sym::max(*demand.least, 0) : Expr(0),
                    demand.most ? sym::min(*demand.most, last) : last);
  out.hint |= met;
  return out;
}

// min(argument, c) meets the upper bound through c alone if c does.
std::optional<Demand> of_minimum(const DemandRules& rules, const Demand& demand, const Known& c) {
  if (!demand.most || !sure(rules, sym::le(c.most, *demand.most))) return demand;
  Demand out = with(demand, demand.least, c.most);
  if (!demand.least) out.hint = true;
  return out;
}

std::optional<Demand> of_maximum(const DemandRules& rules, const Demand& demand, const Known& c) {
  if (!demand.least || !sure(rules, sym::ge(c.least, *demand.least))) return demand;
  Demand out = with(demand, c.least, demand.most);
  if (!demand.most) out.hint = true;
  return out;
}

std::optional<Demand> of_product(const DemandRules& rules, const Demand& demand, const Known& c) {
  if (sure(rules, sym::ge(c.least, 0))) return divided(rules, demand, c);
  if (!sure(rules, sym::le(c.most, 0))) return std::nullopt;
  return divided(rules, flipped(demand), {-c.most, -c.least, std::nullopt});
}

std::optional<Known> shift_factor(const std::optional<Known>& c) {
  const auto by = c && c->least == c->most ? sym::as_const(c->least) : std::nullopt;
  if (!by || *by < 0 || *by > 40) return std::nullopt;
  const Expr factor = int64_t{1} << *by;
  return Known{factor, factor, std::nullopt};
}

}  // namespace

bool Demands::add(const Demand& demand) {
  const auto has_index = [](const std::optional<Expr>& e) { return e && sym::has_index(*e); };
  if ((!demand.least && !demand.most) || has_index(demand.least) || has_index(demand.most)) return false;
  if (all.size() >= kMostDemands || std::find(all.begin(), all.end(), demand) != all.end()) return false;
  all.push_back(demand);
  return true;
}

bool Demands::add_uses(const Demands& others) {
  const bool fresh = (others.other && !other) || (others.floats && !floats) || (others.equals && !equals);
  other |= others.other;
  floats |= others.floats;
  if (!equals) equals = others.equals;
  return fresh;
}

bool Demands::add(const Demands& others) {
  bool fresh = add_uses(others);
  for (const Demand& demand : others.all) fresh |= add(demand);
  return fresh;
}

std::optional<Demand> demand_of_argument(const DemandRules& rules, const Let& let, size_t arg,
                                         const Demand& demand) {
  const DType dtype = rules.dtype(let.args[arg]);
  if (is_bool(dtype)) return std::nullopt;
  const auto c = let.args.size() == 2 ? rules.known(let.args[1 - arg]) : std::nullopt;
  switch (let.op) {
    case ScalarOp::kCast:
    case ScalarOp::kCastSat:
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kTrunc:
    case ScalarOp::kRound: return demand;
    case ScalarOp::kNeg: return flipped(demand);
    case ScalarOp::kAbs:
      if (!demand.most) return std::nullopt;
      return with(demand, demand.least ? sym::max(*demand.least, 0) : Expr(0), demand.most);
    case ScalarOp::kAdd:
      if (!c && is_float(dtype)) return std::nullopt;
      return c ? std::optional(less(demand, *c)) : half(rules, demand);
    case ScalarOp::kSub:
      if (!c && is_float(dtype)) return std::nullopt;
      if (!c) return arg == 0 ? demand : with(demand, Expr(0), Expr(0));
      if (arg == 0) return less(demand, {-c->most, -c->least, std::nullopt});
      return less(flipped(demand), {-c->most, -c->least, std::nullopt});
    case ScalarOp::kMul:
      if (c) return of_product(rules, demand, *c);
      if (let.args[0] == let.args[1] || is_float(dtype)) return std::nullopt;
      return with(demand, Expr(0), Expr(1));
    case ScalarOp::kShl: {
      const auto factor = arg == 0 ? shift_factor(c) : std::nullopt;
      return factor ? of_product(rules, demand, *factor) : std::nullopt;
    }
    case ScalarOp::kDiv: return arg == 0 && c ? times(rules, demand, *c, is_float(dtype)) : std::nullopt;
    case ScalarOp::kShr: {
      const auto factor = arg == 0 ? shift_factor(c) : std::nullopt;
      return factor ? times(rules, demand, *factor, false) : std::nullopt;
    }
    case ScalarOp::kMod:
    case ScalarOp::kRem:
      if (arg != 0 || !c || !sure(rules, sym::ge(c->least, 1))) return std::nullopt;
      return bounded(rules, demand, c->least - 1);
    case ScalarOp::kBitAnd:
      if (!c || !sure(rules, sym::ge(c->least, 0))) return std::nullopt;
      return bounded(rules, demand, c->least);
    case ScalarOp::kMin: return c ? of_minimum(rules, demand, *c) : demand;
    case ScalarOp::kMax: return c ? of_maximum(rules, demand, *c) : demand;
    default: return std::nullopt;
  }
}

std::optional<Demand> demand_of_domain(const DemandRules& rules, const Let& let, size_t arg) {
  const auto range = [](std::optional<Expr> least, std::optional<Expr> most) {
    return std::optional(Demand{.least = least, .most = most, .hint = true});
  };
  switch (let.op) {
    case ScalarOp::kSqrt:
    case ScalarOp::kRsqrt:
    case ScalarOp::kLog:
    case ScalarOp::kLog1p: return range(0, std::nullopt);
    case ScalarOp::kAsin:
    case ScalarOp::kAcos:
    case ScalarOp::kAtanh: return range(-1, 1);
    case ScalarOp::kAcosh: return range(1, std::nullopt);
    case ScalarOp::kPow: {
      const auto exponent =
          arg == 0 && is_float(rules.dtype(let.args[0])) ? rules.known(let.args[1]) : std::nullopt;
      if (!exponent || !exponent->number || *exponent->number == std::floor(*exponent->number))
        return std::nullopt;
      return range(0, std::nullopt);
    }
    default: return std::nullopt;
  }
}

std::optional<Known> known_result(const DemandRules& rules, const Let& let) {
  std::vector<Known> args;
  for (const ValueId id : let.args) {
    const auto known = rules.known(id);
    if (!known) return std::nullopt;
    args.push_back(*known);
  }
  const bool floats = is_float(rules.dtype(let.result));
  switch (let.op) {
    case ScalarOp::kCast:
      if (!floats && is_float(rules.dtype(let.args[0]))) return std::nullopt;
      return args[0];
    case ScalarOp::kNeg: return Known{-args[0].most, -args[0].least, std::nullopt};
    case ScalarOp::kAdd:
      return Known{args[0].least + args[1].least, args[0].most + args[1].most, std::nullopt};
    case ScalarOp::kSub:
      return Known{args[0].least - args[1].most, args[0].most - args[1].least, std::nullopt};
    case ScalarOp::kMul:
      if (!sure(rules, sym::ge(args[0].least, 0)) || !sure(rules, sym::ge(args[1].least, 0)))
        return std::nullopt;
      return Known{args[0].least * args[1].least, args[0].most * args[1].most, std::nullopt};
    case ScalarOp::kMin:
      return Known{sym::min(args[0].least, args[1].least), sym::min(args[0].most, args[1].most),
                   std::nullopt};
    case ScalarOp::kMax:
      return Known{sym::max(args[0].least, args[1].least), sym::max(args[0].most, args[1].most),
                   std::nullopt};
    default: return std::nullopt;
  }
}

}  // namespace stridec::loop
