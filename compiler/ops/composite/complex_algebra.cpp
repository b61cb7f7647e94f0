#include "compiler/ops/composite/complex_algebra.h"

#include <optional>
#include <utility>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/ops/composite/order.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

template <class Change>
Complex each(const Complex& z, const Change& change) {
  return {change(z.re), change(z.im)};
}

struct Squares {
  Complex matrices;  // [batch, n, n]
  Shape outer;
};
Squares squares_of(const Complex& x) {
  Builder& b = x.re.builder();
  if (x.re.rank() < 2) does_not_fit(cat("a matrix is wanted, not ", to_string(x.re.shape())));
  const int64_t last = x.re.rank() - 1;
  const sym::Expr n = x.re.dim(last);
  b.require(sym::eq(x.re.dim(last - 1), n), "a matrix of {0} x {1} is not square", {x.re.dim(last - 1), n});
  const Shape outer(x.re.shape().begin(), x.re.shape().end() - 2);
  return {each(x, [&](Term t) { return reshape(widen(t), {count(outer), n, n}); }), outer};
}

struct Pivots {
  Complex product;          // [batch], with the sign of the exchanges
  std::optional<Term> log;  // of its length; the product is then that of the directions
};

// The pivots of matrices [batch, n, n], n > 0. A column without a pivot makes the product 0.
Pivots pivots_of(const Complex& matrices, bool logs) {
  Builder& b = matrices.re.builder();
  const sym::Expr batch = matrices.re.dim(0), n = matrices.re.dim(1);
  const DType dtype = matrices.re.dtype();
  const Term row = index_along(b, {1, n}, 1, DType::kI64), zero = filled(b, {batch}, dtype, 0);
  std::vector<ValueId> carried{matrices.re, matrices.im, filled(b, {batch}, dtype, 1), zero};
  if (logs) carried.push_back(zero);
  const LoopResult result = loop(b, n, std::nullopt, carried, [&](const LoopState& state) {
    const auto at = [&](size_t i) { return Term(b, state.carried[i]); };
    const Complex m{at(0), at(1)}, done{at(2), at(3)};
    const Term step(b, state.counter_value);
    const Complex column =
        each(m, [&](Term t) { return squeeze(slice(t, 2, state.counter, 1), {2}); });  // [batch, n]
    const Term size = select(greater_equal(row, step), abs(column.re) + abs(column.im), -1);
    const Term best = arg_max(size, 1), from = unsqueeze(best, {1});
    const Term order = select(equal(row, step), from, select(equal(row, from), step, row));
    const Complex moved = each(m, [&](Term t) { return gather(t, order, 1, 1); });
    const Complex pivot_row = each(moved, [&](Term t) { return slice(t, 1, state.counter, 1); });
    const Complex pivot =
        each(pivot_row, [&](Term t) { return reshape(slice(t, 2, state.counter, 1), {batch}); });
    const Term none = logical_and(equal(pivot.re, 0), equal(pivot.im, 0));
    const Complex divisor = select(none, number_like(pivot, 1, 0), pivot);
    const Complex inverse = each(reciprocal(divisor), [&](Term t) { return reshape(t, {batch, 1, 1}); });
    const Complex factor = each(moved, [&](Term t) { return slice(t, 2, state.counter, 1); }) * inverse;
    const Complex eliminated = moved - factor * pivot_row;
    const Term below = expand(unsqueeze(greater(row, step), {2}), {batch, n, n});
    const Complex next = select(below, eliminated, moved);
    const Term exchanged = logical_not(equal(best, step));
    const Term sign = select(exchanged, number_like(pivot.re, -1), number_like(pivot.re, 1));
    const Term length_of_pivot = length(pivot);
    const Complex part = logs ? select(none, number_like(pivot, 0, 0),
                                       each(pivot, [&](Term t) { return t / length(divisor); }))
                              : pivot;
    const Complex grown = done * each(part, [&](Term t) { return t * sign; });
    LoopStep out{.condition = std::nullopt, .carried = {next.re, next.im, grown.re, grown.im}, .stacked = {}};
    if (logs) out.carried.push_back(at(4) + log(length_of_pivot));
    return out;
  });
  Pivots out{{Term(b, result.carried[2]), Term(b, result.carried[3])}, std::nullopt};
  if (logs) out.log = Term(b, result.carried[4]);
  return out;
}

}  // namespace

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
Term length(const Complex& z) {
  const Term a = abs(z.re), b = abs(z.im), larger = maximum(a, b), smaller = minimum(a, b);
  const Term length = larger * sqrt(square(smaller / larger) + 1);
  const Term plain = logical_or(equal(larger, 0), apply(OpKind::kIsInf, larger));
  return select(expand(plain, length.shape()), larger, length);
}
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

Complex determinant(const Complex& x) {
  const Squares s = squares_of(x);
  if (s.matrices.re.dim(1).is_const(0)) {
    Builder& b = x.re.builder();
    return {filled(b, s.outer, x.re.dtype(), 1), filled(b, s.outer, x.re.dtype(), 0)};
  }
  return each(pivots_of(s.matrices, false).product,
              [&](Term t) { return cast(reshape(t, s.outer), x.re.dtype()); });
}
ComplexSignedLog complex_log_determinant(const Complex& x) {
  Builder& b = x.re.builder();
  const Squares s = squares_of(x);
  const auto shaped = [&](Term t) { return cast(reshape(t, s.outer), x.re.dtype()); };
  if (s.matrices.re.dim(1).is_const(0)) {
    const Term zero = filled(b, s.outer, x.re.dtype(), 0);
    return {{filled(b, s.outer, x.re.dtype(), 1), zero}, zero};
  }
  const Pivots pivots = pivots_of(s.matrices, true);
  return {each(pivots.product, shaped), shaped(*pivots.log)};
}

Complex complex_cholesky(const Complex& x) {
  Builder& b = x.re.builder();
  const Squares s = squares_of(x);
  const sym::Expr batch = s.matrices.re.dim(0), n = s.matrices.re.dim(1);
  if (n.is_const(0)) return x;
  const Term row = index_along(b, {1, n}, 1, DType::kI64), column = index_along(b, {1, 1, n}, 2, DType::kI64);
  const ValueId none = filled(b, {batch, n, n}, s.matrices.re.dtype(), 0);
  const std::vector<ValueId> carried{s.matrices.re, s.matrices.im, none, none};
  const LoopResult result = loop(b, n, std::nullopt, carried, [&](const LoopState& state) {
    const auto at = [&](size_t i) { return Term(b, state.carried[i]); };
    const Complex rest{at(0), at(1)}, lower{at(2), at(3)};
    const Term step(b, state.counter_value);
    const Complex below = each(rest, [&](Term t) { return squeeze(slice(t, 2, state.counter, 1), {2}); });
    const Term pivot = sqrt(slice(below.re, 1, state.counter, 1));  // the diagonal is real
    const Term open = greater(row, step), here = equal(row, step);
    const Complex own{select(open, below.re / pivot, select(here, expand(pivot, below.re.shape()), 0)),
                      select(open, below.im / pivot, 0)};
    const Complex across = conjugate(each(own, [](Term t) { return unsqueeze(t, {1}); }));
    const Complex down = each(own, [](Term t) { return unsqueeze(t, {2}); });
    const Complex next = rest - down * across;
    const auto grown = [&](Term t, Term now) { return select(equal(column, step), t, now); };
    return LoopStep{.condition = std::nullopt,
                    .carried = {next.re, next.im, grown(down.re, lower.re), grown(down.im, lower.im)},
                    .stacked = {}};
  });
  return each(Complex{Term(b, result.carried[2]), Term(b, result.carried[3])},
              [&](Term t) { return cast(reshape(t, x.re.shape()), x.re.dtype()); });
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
