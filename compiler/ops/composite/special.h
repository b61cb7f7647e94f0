// Special functions of real numbers, computed in f64 from elementary ones. Arguments are f64; accuracy is
// about 1e-12 of the result unless stated otherwise.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

Term lgamma(Term x);   // log |gamma(x)|
Term digamma(Term x);  // NaN at negative whole numbers, -inf at 0
// The Hurwitz zeta function, the sum over k >= 0 of (q + k)^-s. Negative q: to -20.
Term zeta(Term s, Term q);
Term polygamma(int64_t order, Term x);  // the derivative of digamma of this order

Term erfcx(Term x);  // exp(x^2) erfc(x)
Term erfc(Term x);
// The standard normal distribution: its logarithm and its inverse.
Term log_ndtr(Term x);
Term ndtri(Term p);
Term erfinv(Term y);

}  // namespace stridec::ops
