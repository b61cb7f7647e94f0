// Demands: ranges that values must lie in, and their backward propagation through scalar operations.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

// least <= value <= most; absent: no bound. Bounds are integers, for floats too.
struct Demand {
  std::optional<sym::Expr> least, most;
  bool hint = false;  // values outside are allowed but unusual
  // The select that it was propagated through, and its branch: each element meets the demand of one branch
  // only. 0: none.
  int select = 0;
  bool taken = false;
  bool operator==(const Demand&) const = default;
};

struct Demands {
  std::vector<Demand> all;
  bool other = false;             // the value is used by more than comparisons and conversions to floats
  bool floats = false;            // it is converted to floats
  std::optional<int64_t> equals;  // a constant that the value is compared with for equality

  bool add(const Demand& demand);  // returns whether it is new
  bool add(const Demands& others);
  bool add_uses(const Demands& others);  // all but the demands
};

// The known range of an operand's values. Float bounds are rounded outwards.
struct Known {
  sym::Expr least, most;
  std::optional<double> number;  // the value, if there is only one
};

struct DemandRules {
  const sym::Facts& facts;
  std::function<std::optional<Known>(ValueId)> known;
  std::function<DType(ValueId)> dtype;
};

// Propagates `demand` on the result of a let to its argument `arg`; nothing if no bound follows. The caller
// handles selects and comparisons.
std::optional<Demand> demand_of_argument(const DemandRules& rules, const Let& let, size_t arg,
                                         const Demand& demand);
// The operation's own domain restriction on an argument: the argument of a logarithm is positive, whatever
// its result is used for.
std::optional<Demand> demand_of_domain(const DemandRules& rules, const Let& let, size_t arg);
// The range of a let's result, if its arguments are known.
std::optional<Known> known_result(const DemandRules& rules, const Let& let);

}  // namespace stridec::loop
