// Linear algebra by Gauss-Jordan elimination with row exchanges, in f32 or wider, and distances.
#pragma once

#include "compiler/ops/composite/complex.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

// Of each matrix [n, n] in the last two dims. The determinant of a singular matrix is 0; its inverse has
// non-finite elements.
Term determinant(Term x);
Complex determinant(const Complex& x);
Term inverse(Term x);
// The solution of a x = b for b [..., n, k] with a's outer dims.
Term solve(Term a, Term b);
// The determinant divided by its absolute value, or 0, and the logarithm of the absolute value. The
// determinant itself may be out of x's range.
template <class T>
struct SignedLog {
  T sign;
  Term log;
};
SignedLog<Term> log_determinant(Term x);
SignedLog<Complex> log_determinant(const Complex& x);
// The lower triangle l with l l^H = x for a Hermitian (real: symmetric) positive definite x, of which the
// lower triangle is read. NaN from the first column on where x is not positive definite.
Term cholesky(Term x);
Complex cholesky(const Complex& x);
// The 3-vectors' cross product along dim; operands have one shape.
Term cross_product(Term x, Term y, int64_t dim);

// Euclidean distances [m, n], squared or not, between the rows of a [m, k] and b [n, k].
Term squared_distances(Term a, Term b);
Term distances(Term a, Term b);

}  // namespace stridec::ops
