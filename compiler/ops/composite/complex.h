// Complex numbers as pairs of real tensors of one floating dtype. linear_algebra.h has functions of matrices.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// The parts broadcast with those of another number.
struct Complex {
  Term re, im;
};

// Applies the same function of real tensors to both parts.
template <class Function>
Complex each(const Complex& z, const Function& function) {
  return {function(z.re), function(z.im)};
}

Complex operator+(const Complex& x, const Complex& y);
Complex operator-(const Complex& x, const Complex& y);
Complex operator*(const Complex& x, const Complex& y);
Complex operator*(const Complex& x, double n);
Complex reciprocal(const Complex& z);
Complex conjugate(const Complex& z);
// The square root of x^2 + y^2, without squares that overflow or underflow. Of an infinity and a NaN it is
// infinite, as in C.
Term hypot(Term x, Term y);
Term length(const Complex& z);  // the absolute value
Complex select(Term condition, const Complex& x, const Complex& y);
// `re` with an imaginary part of zeros; the number (re, im) in the shape of z.
Complex real(Term re);
Complex number_like(const Complex& z, double re, double im);

// Products along `dim`: of all elements, where the result lacks `dim`; of the elements up to each one.
Complex product(const Complex& x, int64_t dim);
Complex cumulative_product(const Complex& x, int64_t dim);

// The matrix [[re, -im], [im, re]] of real numbers. Sums, products and inverses of such matrices are the
// real forms of those of the complex matrices.
Term real_form(const Complex& x);
Complex from_real_form(Term x);

}  // namespace stridec::ops
