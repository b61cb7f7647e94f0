// Bessel functions of orders 0 and 1 and Airy's function, computed in f64 from elementary functions.
// Arguments are f64. The error of J, Y and Ai at negative x is about 1e-15 of the amplitude of their
// oscillation, that of the others about 1e-14 of the result.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

Term bessel_j(Term x, int order);
Term bessel_y(Term x, int order);  // -inf at 0, NaN below
// Modified Bessel functions: I times exp(-|x|), and K times exp(x), which is inf at 0 and NaN below.
Term scaled_bessel_i(Term x, int order);
Term scaled_bessel_k(Term x, int order);
Term spherical_bessel_j0(Term x);  // sin(x) / x
Term airy_ai(Term x);

}  // namespace stridec::ops
