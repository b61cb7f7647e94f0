#include "compiler/ops/composite/complex.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/ops/composite/order.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Complex operator+(const Complex& x, const Complex& y) { return {x.re + y.re, x.im + y.im}; }
Complex operator-(const Complex& x, const Complex& y) { return {x.re - y.re, x.im - y.im}; }
Complex operator*(const Complex& x, const Complex& y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
Complex operator*(const Complex& x, double n) { return {x.re * n, x.im * n}; }
Complex reciprocal(const Complex& z) {
  const Term size = square(z.re) + square(z.im);
  return {z.re / size, -z.im / size};
}
Complex conjugate(const Complex& z) { return {z.re, -z.im}; }
Term hypot(Term x, Term y) {
  const Term a = abs(x), b = abs(y), larger = maximum(a, b), smaller = minimum(a, b);
  const Term length = larger * sqrt(square(smaller / select(equal(larger, 0), 1, larger)) + 1);
  const Term infinite = logical_or(apply(OpKind::kIsInf, a), apply(OpKind::kIsInf, b));
  return select(infinite, kInfinity, length);
}
Term length(const Complex& z) { return hypot(z.re, z.im); }
Complex select(Term condition, const Complex& x, const Complex& y) {
  return {select(condition, x.re, y.re), select(condition, x.im, y.im)};
}
Complex real(Term re) { return {re, expand(number_like(re, 0), re.shape())}; }
Complex number_like(const Complex& z, double re, double im) {
  return {expand(number_like(z.re, re), z.re.shape()), expand(number_like(z.im, im), z.im.shape())};
}

Complex cumulative_product(const Complex& x, int64_t dim) {
  const std::vector<Term> out = prefix_scan({x.re, x.im}, dim, [](const auto& earlier, const auto& later) {
    const Complex product = Complex{earlier[0], earlier[1]} * Complex{later[0], later[1]};
    return std::vector<Term>{product.re, product.im};
  });
  return {out[0], out[1]};
}
Complex product(const Complex& x, int64_t dim) {
  Builder& b = x.re.builder();
  Shape one = x.re.shape();
  one[static_cast<size_t>(dim)] = 1;
  const auto begun = [&](Term t, double first) {  // 1 is the product of no elements
    return concat({filled(b, one, t.dtype(), first), t}, dim);
  };
  const Complex all = cumulative_product({begun(x.re, 1), begun(x.im, 0)}, dim);
  return each(all, [&](Term t) { return squeeze(slice(t, dim, x.re.dim(dim), 1), {dim}); });
}

Term real_form(const Complex& x) {
  const int64_t last = x.re.rank() - 1;
  return concat({concat({x.re, -x.im}, last), concat({x.im, x.re}, last)}, last - 1);
}
Complex from_real_form(Term x) {
  Builder& b = x.builder();
  const int64_t last = x.rank() - 1;
  const sym::Expr rows = b.simplify(sym::floordiv(x.dim(last - 1), 2)),
                  columns = b.simplify(sym::floordiv(x.dim(last), 2));
  const Term left = slice(x, last, 0, columns);
  return {slice(left, last - 1, 0, rows), slice(left, last - 1, rows, rows)};
}

}  // namespace stridec::ops
