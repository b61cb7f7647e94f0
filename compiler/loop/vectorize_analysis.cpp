#include "compiler/loop/vectorize_analysis.h"

#include <algorithm>
#include <cmath>

#include "compiler/loop/walk.h"

namespace stridec::loop {

using sym::Expr;

bool moves_extents(const Block& block, Expr var) {
  bool moves = false;
  for_each_stmt(block, [&](const Stmt& stmt) {
    for (const Dim& dim : dims_of(stmt)) moves = moves || sym::depends_on(dim.extent, var);
  });
  return moves;
}

int64_t Spread::elements() const { return *std::max_element(spread.begin(), spread.end()) + 1; }

Expr strip() {
  static const Expr var = sym::var("%strip");
  return var;
}

std::optional<Spread> spread_of(Expr offset, Expr var, int width, const sym::Facts& facts) {
  auto lane = [&](int l) { return sym::simplify(sym::substitute(offset, var, strip() * width + l), facts); };
  Spread out{.base = lane(0), .spread = {}};
  int64_t least = 0;
  for (int l = 0; l < width; ++l) {
    const auto distance = sym::as_const(sym::simplify(lane(l) - out.base, facts));
    if (!distance) return std::nullopt;
    out.spread.push_back(*distance);
    least = std::min(least, *distance);
  }
  for (int64_t& distance : out.spread) distance -= least;
  out.base = out.base + least;
  return out;
}

namespace {

// Bounds of an expression's difference between neighbouring lanes; infinite if unknown.
struct LaneStep {
  double least = -HUGE_VAL, most = HUGE_VAL;
};

LaneStep step_of(sym::Expr expr, sym::Expr lane, const sym::Facts& facts);

// The c of a term c * quotient.
std::optional<Expr> coefficient_of(Expr quotient, Expr term) {
  if (term == quotient) return Expr(1);
  if (term.op() != sym::Op::kMul) return std::nullopt;
  Expr c = 1;
  bool found = false;
  for (const Expr& arg : term.args()) {
    if (arg == quotient && !found)
      found = true;
    else
      c *= arg;
  }
  return found ? std::optional(c) : std::nullopt;
}

// x % m + c * (x // m), which is x + (c - m) * (x // m), for c >= m: it grows with x, and faster where x
// passes a multiple of m.
std::optional<LaneStep> step_of_digits(Expr remainder, Expr term, Expr lane, const sym::Facts& facts) {
  const Expr x = remainder.arg(0), m = remainder.arg(1);
  const auto c = coefficient_of(sym::floordiv(x, m), term);
  if (!c || sym::depends_on(m, lane) || sym::depends_on(*c, lane) || facts.bounds(m).lo < 1 ||
      !facts.holds(sym::le(m, *c)))
    return std::nullopt;
  const LaneStep s = step_of(x, lane, facts);
  return s.least < 0 ? LaneStep{} : LaneStep{s.least, HUGE_VAL};
}

LaneStep step_of_sum(Expr sum, Expr lane, const sym::Facts& facts) {
  LaneStep all{0, 0};
  std::vector<Expr> terms(sum.args().begin(), sum.args().end());
  const auto add = [&](const LaneStep& s) { all = {all.least + s.least, all.most + s.most}; };
  for (size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].op() != sym::Op::kMod || !sym::depends_on(terms[i], lane)) continue;
    for (size_t j = 0; j < terms.size(); ++j) {
      const auto digits = i == j ? std::nullopt : step_of_digits(terms[i], terms[j], lane, facts);
      if (!digits) continue;
      add(*digits);
      terms[i] = terms[j] = 0;
      break;
    }
  }
  for (const Expr& term : terms) add(step_of(term, lane, facts));
  return all;
}

LaneStep step_of(sym::Expr expr, sym::Expr lane, const sym::Facts& facts) {
  if (expr == lane) return {1, 1};
  if (!sym::depends_on(expr, lane)) return {0, 0};
  switch (expr.op()) {
    case sym::Op::kAdd: return step_of_sum(expr, lane, facts);
    case sym::Op::kMul: {
      const auto factor = sym::as_const(expr.arg(0));
      if (!factor || expr.args().size() != 2) {  // symbolic factors: only the sign may be known
        LaneStep s{0, 0};
        for (const sym::Expr& arg : expr.args()) {
          const bool moves = sym::depends_on(arg, lane);
          if (moves ? s.most > 0 || step_of(arg, lane, facts).least < 0 : facts.bounds(arg).lo < 0) return {};
          if (moves) s.most = HUGE_VAL;
        }
        return s;
      }
      const LaneStep s = step_of(expr.arg(1), lane, facts);
      const double k = static_cast<double>(*factor), a = k * s.least, b = k * s.most;
      return {std::min(a, b), std::max(a, b)};
    }
    case sym::Op::kMin:
    case sym::Op::kMax: {
      LaneStep all{HUGE_VAL, -HUGE_VAL};
      for (const sym::Expr& arg : expr.args()) {
        const LaneStep s = step_of(arg, lane, facts);
        all = {std::min(all.least, s.least), std::max(all.most, s.most)};
      }
      return all;
    }
    case sym::Op::kFloorDiv: {
      const LaneStep s = step_of(expr.arg(0), lane, facts);
      if (sym::depends_on(expr.arg(1), lane) || facts.bounds(expr.arg(1)).lo < 1) return {};
      if (const auto divisor = sym::as_const(expr.arg(1)))
        return {std::floor(s.least / static_cast<double>(*divisor)),
                std::ceil(s.most / static_cast<double>(*divisor))};
      return {s.least < 0 ? -HUGE_VAL : 0, HUGE_VAL};
    }
    case sym::Op::kMod: {  // a growing argument wraps around, and never skips ahead
      const LaneStep s = step_of(expr.arg(0), lane, facts);
      if (s.least < 0 || sym::depends_on(expr.arg(1), lane)) return {};
      return {-HUGE_VAL, s.most};
    }
    default: return {};
  }
}

}  // namespace

bool grows_by_at_most_one(sym::Expr offset, sym::Expr lane, const sym::Facts& facts) {
  return step_of(offset, lane, facts).most <= 1;
}
bool grows_by_at_least_one(sym::Expr offset, sym::Expr lane, const sym::Facts& facts) {
  return step_of(offset, lane, facts).least >= 1;
}
bool never_falls(sym::Expr offset, sym::Expr lane, const sym::Facts& facts) {
  return step_of(offset, lane, facts).least >= 0;
}

}  // namespace stridec::loop
