// The regularised incomplete gamma functions, computed in f64 from elementary ones. Arguments are f64.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// P(a, x) and Q(a, x), whose sum is 1. The error is about 1e-13 of the smaller one where it is computed
// first: Q for x >= max(a, 2), else P; the other is 1 less it. NaN for negative a or x, and where a and x
// are both 0 or both infinite.
struct IncompleteGamma {
  Term lower, upper;
};
IncompleteGamma incomplete_gamma(Term a, Term x);

}  // namespace stridec::ops
