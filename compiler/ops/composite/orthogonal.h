// Orthogonal polynomials, computed in f64. x and the degrees n, of which the whole part counts, are f64. A
// negative degree gives 0.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// Of the first to the fourth kind: T, U, V, W.
enum class Chebyshev { kFirst, kSecond, kThird, kFourth };
Term chebyshev_polynomial(Chebyshev kind, Term x, Term n);

// Hermite's H (of physicists) and He (of probability theory), Laguerre's L and Legendre's P: a loop of as
// many iterations as the largest degree.
enum class Recurrence { kHermite, kHermiteE, kLaguerre, kLegendre };
Term orthogonal_polynomial(Recurrence kind, Term x, Term n);

}  // namespace stridec::ops
