// Linear algebra by Gauss-Jordan elimination with row exchanges, in f32 or wider, and distances.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// Of each matrix [n, n] in the last two dims. The determinant of a singular matrix is 0; its inverse has
// non-finite elements.
Term determinant(Term x);
Term inverse(Term x);

// Squared Euclidean distances [m, n] between the rows of a [m, k] and b [n, k].
Term squared_distances(Term a, Term b);

}  // namespace stridec::ops
