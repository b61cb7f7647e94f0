// Patterns over expressions, as rules.h writes them: trees that are not brought into canonical form.
//
// x, y, z, w match any expression, c0, c1, c2 a constant; repeated names must match the same expression.
// Operands of + * min max && || and == != match in any order. In a nested pattern the wildcards must cover
// all operands: the last unbound one takes the remaining ones. At the root, operands that the pattern does
// not mention are left unchanged.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "compiler/sym/expr.h"

namespace stridec::sym::pattern {

inline constexpr int kWildcards = 7;
inline constexpr int kFirstConstant = 4;  // wildcards from here on stand for constants

struct Pattern {
  enum class Kind : uint8_t { kWildcard, kLiteral, kOperation };
  Kind kind = Kind::kLiteral;
  Op op = Op::kConst;
  int wildcard = 0;
  int64_t literal = 0;
  std::vector<Pattern> args;

  template <class T>
    requires std::is_integral_v<T>
  Pattern(T value) : literal(static_cast<int64_t>(value)) {}  // implicit on purpose
  Pattern(Op operation, std::initializer_list<Pattern> operands);
  static Pattern any(int index);
};

using Bindings = std::array<std::optional<Expr>, kWildcards>;

// Calls `accept` for matches of e until it returns true; `rest` holds the root's operands that the pattern
// does not cover.
bool match(const Pattern& p, Expr e, Bindings& b,
           const std::function<bool(std::span<const Expr> rest)>& accept);

Expr instantiate(const Pattern& p, const Bindings& b);

// Evaluates the pattern as written, with integers for the wildcards; nothing in the same cases as evaluate().
std::optional<int64_t> value_of(const Pattern& p, std::span<const int64_t> wildcards);

inline Pattern operation(Op op, Pattern a, Pattern b) { return Pattern(op, {std::move(a), std::move(b)}); }

inline Pattern operator+(Pattern a, Pattern b) { return operation(Op::kAdd, std::move(a), std::move(b)); }
inline Pattern operator*(Pattern a, Pattern b) { return operation(Op::kMul, std::move(a), std::move(b)); }
inline Pattern operator-(Pattern a, Pattern b) { return std::move(a) + Pattern(-1) * std::move(b); }
inline Pattern operator==(Pattern a, Pattern b) { return operation(Op::kEq, std::move(a), std::move(b)); }
inline Pattern operator!=(Pattern a, Pattern b) { return operation(Op::kNe, std::move(a), std::move(b)); }
inline Pattern operator<(Pattern a, Pattern b) { return operation(Op::kLt, std::move(a), std::move(b)); }
inline Pattern operator<=(Pattern a, Pattern b) { return operation(Op::kLe, std::move(a), std::move(b)); }
inline Pattern operator&&(Pattern a, Pattern b) { return operation(Op::kAnd, std::move(a), std::move(b)); }
inline Pattern operator||(Pattern a, Pattern b) { return operation(Op::kOr, std::move(a), std::move(b)); }
inline Pattern floordiv(Pattern a, Pattern b) { return operation(Op::kFloorDiv, std::move(a), std::move(b)); }
inline Pattern mod(Pattern a, Pattern b) { return operation(Op::kMod, std::move(a), std::move(b)); }
inline Pattern min(Pattern a, Pattern b) { return operation(Op::kMin, std::move(a), std::move(b)); }
inline Pattern max(Pattern a, Pattern b) { return operation(Op::kMax, std::move(a), std::move(b)); }
inline Pattern select(Pattern c, Pattern a, Pattern b) {
  return Pattern(Op::kSelect, {std::move(c), std::move(a), std::move(b)});
}

}  // namespace stridec::sym::pattern
