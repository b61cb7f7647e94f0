// Complex numbers as pairs of real tensors of one floating dtype, and their linear algebra, in f32 or wider.
// Determinants use elimination with row exchanges.
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
// The absolute value, computed without squares that overflow or underflow.
Term length(const Complex& z);
Complex select(Term condition, const Complex& x, const Complex& y);
// `re` with an imaginary part of zeros; the number (re, im) in the shape of z.
Complex real(Term re);
Complex number_like(const Complex& z, double re, double im);

// Products along `dim`: of all elements, where the result lacks `dim`; of the elements up to each one.
Complex product(const Complex& x, int64_t dim);
Complex cumulative_product(const Complex& x, int64_t dim);

// The determinant of each matrix [n, n] in the last two dims; 0 for a singular one.
Complex determinant(const Complex& x);
// The determinant divided by its absolute value, or 0, and the logarithm of the absolute value.
struct ComplexSignedLog {
  Complex sign;
  Term log;
};
ComplexSignedLog complex_log_determinant(const Complex& x);
// The lower triangle l with l l^H = x for a Hermitian positive definite x. Only the lower triangle of x is
// read.
Complex complex_cholesky(const Complex& x);

// The matrix [[re, -im], [im, re]] of real numbers. Sums, products and inverses of such matrices are the
// real forms of those of the complex matrices.
Term real_form(const Complex& x);
Complex from_real_form(Term x);

}  // namespace stridec::ops
