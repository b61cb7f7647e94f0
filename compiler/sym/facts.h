// Facts about variables (range, divisibility, equality), and conservative proofs from them.
//
// Facts is a value: copies are cheap and share their contents, so a walk over loops extends a copy of its
// caller's facts and drops it at the end. Nothing is assumed by default, not even that a size is
// non-negative: the creator of a symbol states its range. All answers are conservative and hold for every
// assignment that satisfies the facts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "compiler/sym/expr.h"
#include "compiler/sym/interval.h"

namespace stridec::sym {

enum class Answer { kYes, kNo, kUnknown };

class Facts {
 public:
  Facts();
  Facts(const Facts&);
  Facts(Facts&&) noexcept;
  Facts& operator=(const Facts&);
  Facts& operator=(Facts&&) noexcept;
  ~Facts();

  // Each call narrows what is known; no fact is ever removed.
  void set_range(Expr variable, std::optional<int64_t> lo, std::optional<int64_t> hi);
  void set_divisible(Expr variable, int64_t n);  // variable mod n == 0, n >= 1
  void set_equal(Expr a, Expr b);
  void assume(Expr condition);

  // 0 <= index < extent, as inside the loop; it follows that the extent is at least 1. State facts about the
  // extent first: bounds(index) uses the extent's bounds at the time of this call (proofs use the extent
  // itself).
  void set_index(Expr index, Expr extent);
  // The same for an index that matters only where it is less than the extent: elsewhere the extent may be 0.
  // An extent of 1 therefore does not make the index a constant.
  void set_masked_index(Expr index, Expr extent);

  Facts with_range(Expr variable, std::optional<int64_t> lo, std::optional<int64_t> hi) const;
  Facts with_index(Expr index, Expr extent) const;
  Facts with(Expr condition) const;

  Interval bounds(Expr e) const;
  int64_t known_divisor(Expr e) const;  // the largest known n >= 1 that divides e; 0 if e is known to be 0
  Answer prove(Expr condition) const;
  bool holds(Expr condition) const { return prove(condition) == Answer::kYes; }
  // The facts beyond ranges and divisors of single variables, as conditions; assume() accepts them.
  std::vector<Expr> relations() const;
  bool contradictory() const;  // no assignment satisfies the facts: code under them is dead

  struct State;
  struct Change;
  const State& state() const { return *state_; }

 private:
  void add_index(Expr index, Expr extent);
  State& writable(const Change& change);
  std::shared_ptr<State> state_;
};

// The simplest known expression that equals e wherever the facts hold. Never throws; idempotent.
Expr simplify(Expr e, const Facts& facts);
Expr simplify(Expr e);  // without facts

}  // namespace stridec::sym
