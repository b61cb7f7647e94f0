// Sums of linear expressions, as the gradients of means and variances are.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// The sum over `dims`, which stay with extent 1. Factors that do not depend on `dims` are multiplied
// afterwards. Addends that are linear in deviations x - mean(x over dims) are left out: their sum is 0 for
// all inputs, and so are its derivatives. The derivative of a variance by its mean is such a sum. The sum of
// a one-hot row is the number that it holds, as in the derivative of a cross entropy.
Term linear_sum(Term term, const Dims& dims);

}  // namespace stridec::ops
