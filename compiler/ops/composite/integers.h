// Parts of numbers: divisors of integers, fractions and exponents of floats.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// Of integers of one shape: 0 for two zeros. The least signed integer is its own absolute value.
Term greatest_common_divisor(Term x, Term y);
Term least_common_multiple(Term x, Term y);

// x = mantissa 2^exponent, with 0.5 <= |mantissa| < 1, or x itself and 0 for zeros and what is not finite.
// The exponent is i32.
struct Exponential {
  Term mantissa, exponent;
};
Exponential mantissa_and_exponent(Term x);

}  // namespace stridec::ops
