// Random expression trees that are not canonical, evaluated on the tree: the oracle of the fuzz tests.
#pragma once

#include <array>
#include <optional>
#include <random>
#include <span>

#include "compiler/sym/pattern.h"

namespace stridec::sym::test {

using Assignment = std::array<int64_t, pattern::kWildcards>;

inline Expr variable(int index) {
  static const std::array<Expr, pattern::kWildcards> names = {var("n"),  var("m"),  var("batch"), var("a b"),
                                                              var("%i"), var("%j"), var("%k")};
  return names[static_cast<size_t>(index)];
}

inline pattern::Bindings as_variables() {
  pattern::Bindings b;
  for (int i = 0; i < pattern::kWildcards; ++i) b[static_cast<size_t>(i)] = variable(i);
  return b;
}

struct Random {
  std::mt19937 engine;
  explicit Random(uint32_t seed) : engine(seed) {}
  int64_t in(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(engine() % static_cast<uint64_t>(hi - lo + 1));
  }
  bool one_in(int64_t n) { return in(1, n) == 1; }

  Assignment assignment(int64_t lo = -9, int64_t hi = 24) {
    Assignment a;
    for (int64_t& v : a) v = one_in(3) ? in(0, 4) : in(lo, hi);
    return a;
  }

  int64_t constant() {
    static constexpr int64_t kUsual[] = {0, 1, -1, 2, 3, 4, 5, 8, 16, -2, -4, 12, 64};
    return one_in(6) ? in(-20, 20) : kUsual[in(0, 12)];
  }

  // Index patterns of reshapes: quotient and remainder of a shifted index by one divisor, together or alone.
  pattern::Pattern digits(int depth) {
    using pattern::Pattern;
    auto leaf = [&] { return Pattern::any(static_cast<int>(in(0, 6))); };
    const Pattern divisor = one_in(2) ? Pattern(in(2, 9)) : leaf();
    const Pattern inner = one_in(2) ? leaf() : Pattern(Op::kAdd, {leaf(), Pattern(in(-2, 2))});
    Pattern index(Op::kAdd, {Pattern(Op::kMul, {one_in(2) ? divisor : Pattern(in(-9, 9)), leaf()}), inner});
    if (one_in(3)) index = Pattern(Op::kAdd, {index, Pattern(Op::kMul, {Pattern(-1), leaf()})});
    const Pattern low(Op::kMod, {index, divisor}), quotient(Op::kFloorDiv, {index, divisor});
    if (one_in(3)) return one_in(2) ? low : quotient;
    const Pattern moved(Op::kAdd, {quotient, one_in(2) ? Pattern(in(-2, 2)) : tree(depth - 2)});
    const Pattern high =
        one_in(4) ? moved : Pattern(Op::kMod, {moved, one_in(2) ? Pattern(in(2, 5)) : leaf()});
    return Pattern(Op::kAdd, {Pattern(Op::kMul, {divisor, high}), low});
  }

  pattern::Pattern tree(int depth) {
    if (depth >= 2 && one_in(8)) return digits(depth);
    if (depth <= 0 || one_in(6))
      return one_in(3) ? pattern::Pattern(constant()) : pattern::Pattern::any(static_cast<int>(in(0, 6)));
    static constexpr Op kOps[] = {Op::kAdd, Op::kAdd,      Op::kAdd,      Op::kMul,   Op::kMul,
                                  Op::kMul, Op::kFloorDiv, Op::kFloorDiv, Op::kMod,   Op::kMod,
                                  Op::kMin, Op::kMax,      Op::kEq,       Op::kNe,    Op::kLt,
                                  Op::kLe,  Op::kAnd,      Op::kOr,       Op::kSelect};
    Op op = kOps[in(0, 18)];
    if (op == Op::kSelect)
      return pattern::Pattern(op, {condition(depth - 1), tree(depth - 1), tree(depth - 1)});
    if (op == Op::kAnd || op == Op::kOr)
      return pattern::Pattern(op, {condition(depth - 1), condition(depth - 1)});
    bool by_constant = (op == Op::kFloorDiv || op == Op::kMod || op == Op::kMul) && !one_in(3);
    return pattern::Pattern(op,
                            {tree(depth - 1), by_constant ? pattern::Pattern(constant()) : tree(depth - 1)});
  }

  pattern::Pattern condition(int depth) {
    static constexpr Op kOps[] = {Op::kEq, Op::kNe, Op::kLt, Op::kLe};
    return pattern::Pattern(kOps[in(0, 3)], {tree(depth - 1), tree(depth - 1)});
  }
};

inline auto lookup_in(const Assignment& a) {
  return [&a](Expr v) -> std::optional<int64_t> {
    for (int i = 0; i < pattern::kWildcards; ++i) {
      if (variable(i) == v) return a[static_cast<size_t>(i)];
    }
    return std::nullopt;
  };
}

}  // namespace stridec::sym::test
