// What a side of a rule costs where its match binds names so, for conditions: cost(yield) < cost(match).
#pragma once

#include <string_view>

#include "compiler/extend/evaluate.h"

namespace stridec::extend {

struct Measure {
  std::string_view name;  // "flops", "bytes", or "cost", the sum of both
  std::string_view side;  // "match" or "yield"
};

// Of the side's operations, each by itself: operations on numbers, and bytes read and written. What depends
// on constants alone costs nothing. Throws Error (kDoesNotFit) where the side does not fit.
sym::Expr cost_of_side(graph::Builder& builder, const Rule& rule, const Bindings& bindings,
                       const Operators* operators, const Measure& measure);

}  // namespace stridec::extend
