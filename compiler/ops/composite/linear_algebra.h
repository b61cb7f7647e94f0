// Linear algebra by Gauss-Jordan elimination with row exchanges, in f32 or wider, and distances.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// Of each matrix [n, n] in the last two dims. The determinant of a singular matrix is 0; its inverse has
// non-finite elements.
Term determinant(Term x);
Term inverse(Term x);
// The solution of a x = b for b [..., n, k] with a's outer dims.
Term solve(Term a, Term b);
// The sign of the determinant and the logarithm of its size, which may be out of x's range.
struct SignedLog {
  Term sign, log;
};
SignedLog log_determinant(Term x);
// The lower triangle l with l l^T = x for a symmetric positive definite x, of which the lower triangle is
// read. NaN from the first column on where x is not positive definite.
Term cholesky(Term x);
// The 3-vectors' cross product along dim; operands have one shape.
Term cross_product(Term x, Term y, int64_t dim);

// Squared Euclidean distances [m, n] between the rows of a [m, k] and b [n, k].
Term squared_distances(Term a, Term b);

}  // namespace stridec::ops
