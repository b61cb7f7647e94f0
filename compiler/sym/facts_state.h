// What a Facts holds: bounds and conditions of symbols. Private to compiler/sym.
#pragma once

#include <utility>
#include <vector>

#include "compiler/sym/facts.h"
#include "compiler/sym/polynomial.h"

namespace stridec::sym {

struct Facts::State {
  struct Variable {
    Expr name;
    Interval range;
    int64_t divisor = 1;
    bool has_extent = false;
    Expr extent;  // 0 <= name < extent
  };
  // A sum or another expression that is not a variable; sums have no constant, no common factor and a
  // positive first coefficient.
  struct Bound {
    Expr of;
    Interval range;
    int64_t divisor = 1;
  };

  std::vector<Variable> variables;  // in the order of their first fact: inner loops last
  std::vector<Bound> bounds;
  std::vector<Expr> conditions;  // known to hold
  Substitution equal;            // replacements contain no replaced variable
  bool contradictory = false;
  uint64_t version = 0;  // equal versions hold equal facts: the key of caches

  const Variable* find(Expr variable) const;
  const Bound* find_bound(Expr e) const;
};

// A step that extends facts, with its operands.
struct Facts::Change {
  enum Kind { kRange, kDivisible, kEqual, kCondition, kIndex, kAfterQuestion } kind = kRange;
  Expr a, b, c;
  bool operator==(const Change&) const = default;
};

// p == scale * of + shift, where `of` is as in State::Bound.
struct Normalised {
  Expr of;
  int64_t scale, shift;
};
Normalised normalised(Polynomial p);

// Proves the condition without rewriting it first; simplify() uses this one.
Answer prove_directly(Expr condition, const Facts& facts);

// Facts::bounds may start a proof to bound a quotient with a symbolic divisor. Such a proof uses these
// functions, which bound by interval arithmetic only, so that the recursion ends.
Interval interval_bounds(Expr e, const Facts& facts);
bool not_negative_by_intervals(const Polynomial& p, const Facts& facts);

}  // namespace stridec::sym
