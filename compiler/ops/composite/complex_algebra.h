// Complex numbers as pairs of real tensors of one floating dtype, and linear algebra of them by elimination
// with row exchanges, in f32 or wider.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// The parts broadcast with those of another number.
struct Complex {
  Term re, im;
};

Complex operator+(const Complex& x, const Complex& y);
Complex operator-(const Complex& x, const Complex& y);
Complex operator*(const Complex& x, const Complex& y);
Complex operator*(const Complex& x, double n);
Complex reciprocal(const Complex& z);
Complex conjugate(const Complex& z);
// The length of the vector (re, im), without squares that overflow or vanish.
Term length(const Complex& z);
Complex select(Term condition, const Complex& x, const Complex& y);
// A real number, and a number in the shape of another.
Complex real(Term re);
Complex number_like(const Complex& z, double re, double im);

// Products along dim: of all elements, without dim, and of the elements up to each one.
Complex product(const Complex& x, int64_t dim);
Complex cumulative_product(const Complex& x, int64_t dim);

// Of each matrix [n, n] in the last two dims. The determinant of a singular matrix is 0.
Complex determinant(const Complex& x);
// The determinant's direction, a number of length 1 or 0, and the logarithm of its length.
struct ComplexSignedLog {
  Complex sign;
  Term log;
};
ComplexSignedLog complex_log_determinant(const Complex& x);
// The lower triangle l with l l^H = x for a Hermitian positive definite x, of which the lower triangle is
// read.
Complex complex_cholesky(const Complex& x);

// The matrix [[re, -im], [im, re]] of real numbers. Sums, products and inverses of such matrices are those of
// the complex ones.
Term real_form(const Complex& x);
Complex from_real_form(Term x);

}  // namespace stridec::ops
