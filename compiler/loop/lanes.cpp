#include "compiler/loop/lanes.h"

#include <algorithm>

namespace stridec::loop {

using sym::Expr;

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

}  // namespace stridec::loop
