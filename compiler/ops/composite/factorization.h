// Factors of the matrices in the last two dims, in f32 or wider: QR by Householder's reflections, LU by
// elimination with row exchanges, singular values and eigenvalues by Jacobi's rotations, and exponentials.
// Methods: Golub and Van Loan, Matrix Computations; packed forms and signs are those of LAPACK.
#pragma once

#include <optional>

#include "compiler/ops/composite/complex.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

// LAPACK's geqrf: x [..., m, n] = Q R, with R in and above the diagonal of `packed`, and below it the vectors
// v of the reflections 1 - scale v v^T, whose product Q is. `scale` is [..., min(m, n)].
// Of complex x: 1 - scale v v^H, and R with a real diagonal.
template <class T>
struct Reflections {
  T packed, scale;
};
Reflections<Term> reflections(Term x);
Reflections<Complex> reflections(const Complex& x);
// The first `columns` columns, at most m, of the product of the reflections in the columns of packed
// [..., m, n] that `scale` [..., k] has a number for.
Term orthogonal(Term packed, Term scale, sym::Expr columns);
Complex orthogonal(const Complex& packed, const Complex& scale, sym::Expr columns);

template <class T>
struct OrthogonalFactors {
  T q, r;
};
// q [..., m, k] r [..., k, n] = x, k = min(m, n), or m if `complete`.
OrthogonalFactors<Term> orthogonal_factors(Term x, bool complete);
OrthogonalFactors<Complex> orthogonal_factors(const Complex& x, bool complete);

// LAPACK's getrf: l below the diagonal of `packed`, whose diagonal is 1, and u above it. `pivots`
// [..., min(m, n)], i32, has for each step the row, counted from 1, that it exchanges its row with.
struct TriangularFactors {
  Term packed, pivots;
};
TriangularFactors triangular_factors(Term x);
// The lower trapezoid [..., m, k] and the upper one [..., k, n] of packed factors [..., m, n].
Term lower_factor(Term packed);
Term upper_factor(Term packed);
// The matrix p [..., m, m] with x = p l u.
Term exchanges(Term pivots, sym::Expr m, DType dtype);

// x [..., m, n] = u s v^H. `values` [..., min(m, n)] descend. `right` is v [..., n, n], `scaled` is x v
// [..., m, n], whose columns are those of u times the values; both are f32 or wider.
template <class T>
struct SingularValues {
  Term values;
  T right, scaled;
};
SingularValues<Term> singular_values(Term x);
SingularValues<Complex> singular_values(const Complex& x);
// u and v, in the dtype: all columns if `full`, otherwise the first min(m, n).
template <class T>
struct SingularVectors {
  T left, right;
};
SingularVectors<Term> singular_vectors(const SingularValues<Term>& s, bool full, DType dtype);
SingularVectors<Complex> singular_vectors(const SingularValues<Complex>& s, bool full, DType dtype);
// v diag(1 / s) u^T, without the values that are at most `cutoff`, whose shape broadcasts to x's outer dims.
Term pseudo_inverse(const SingularValues<Term>& s, Term cutoff, DType dtype);

// Of symmetric or Hermitian matrices [..., n, n]: values [..., n] ascend; vectors are columns of norm 1, of
// any sign or phase.
template <class T>
struct HermitianEigenvalues {
  Term values;
  T vectors;
};
HermitianEigenvalues<Term> symmetric_eigenvalues(Term x);
HermitianEigenvalues<Complex> symmetric_eigenvalues(const Complex& x);
// The symmetric matrix of which x has the lower or the upper triangle.
Term symmetric(Term x, bool upper);

// Of square matrices, real [..., n, n] or complex [..., n, n, 2]: values [..., n, 2], in no order, and
// vectors [..., n, n, 2] in columns, of norm 1 and, where they are complex, with a real largest element.
// Without a gradient. NaN where a matrix is not finite.
struct EigenPairs {
  Term values;
  std::optional<Term> vectors;  // if `vectors`
};
EigenPairs eigenvalues(Term x, bool complex, bool vectors);

// The x [..., n, k] of the least norm among those with the least |a x - b|, for a [..., m, n] and b [...,
// m, k], whose outer dims broadcast. Singular values of a up to `part` (rank 0) of the largest count as 0;
// `rank`, i64, is the number of the others.
struct LeastSquares {
  Term solution, rank, values;
};
LeastSquares least_squares(Term a, Term b, Term part);

// The exponential of square matrices by a polynomial of scaled ones that are squared again.
Term matrix_exponential(Term x);

}  // namespace stridec::ops
