// Ranges that values have to lie in, and how they pass from the result of a scalar operation to its
// arguments.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

// least <= value <= most; absent: no bound. Bounds are integers, also of floats.
struct Demand {
  std::optional<sym::Expr> least, most;
  bool hint = false;  // values outside do no harm, but do not do the usual either
  // Which select it comes through and from which side: an element meets the demand of one side only. 0: none.
  int select = 0;
  bool taken = false;
  bool operator==(const Demand&) const = default;
};

struct Demands {
  std::vector<Demand> all;
  bool other = false;             // the value is used for more than comparisons and conversions to floats
  bool floats = false;            // it is converted to floats
  std::optional<int64_t> equals;  // a number that it is asked to be or not to be

  bool add(const Demand& demand);  // whether it is new
  bool add(const Demands& others);
};

// The values that an operand can have, where they are known. Of floats: rounded outwards.
struct Known {
  sym::Expr least, most;
  std::optional<double> number;  // a single value
};

struct DemandRules {
  const sym::Facts& facts;
  std::function<std::optional<Known>(ValueId)> known;
  std::function<DType(ValueId)> dtype;
};

// What `demand` on the result of a let asks of its argument `arg`; nothing: no bound that could be told.
// Selects and comparisons are the caller's.
std::optional<Demand> demand_of_argument(const DemandRules& rules, const Let& let, size_t arg,
                                         const Demand& demand);
// What the operation itself asks of its argument: the argument of a logarithm is positive, whatever its
// result is for.
std::optional<Demand> demand_of_domain(const DemandRules& rules, const Let& let, size_t arg);
// Values of a let whose arguments are known.
std::optional<Known> known_result(const DemandRules& rules, const Let& let);

}  // namespace stridec::loop
