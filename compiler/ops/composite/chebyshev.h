// Sums of polynomials with constant coefficients, for approximations of functions.
#pragma once

#include <span>

#include "compiler/ops/term.h"

namespace stridec::ops {

// c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule.
Term power_sum(std::span<const double> c, Term x);
// c[0] + c[1] T1(x) + c[2] T2(x) + ... of Chebyshev's polynomials, x in [-1, 1], by Clenshaw's recurrence.
Term chebyshev_sum(std::span<const double> c, Term x);

}  // namespace stridec::ops
