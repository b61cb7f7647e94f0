// Elimination takes one loop iteration per column.
#include "compiler/ops/composite/linear_algebra.h"

#include <optional>
#include <type_traits>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

// What real numbers (Term) and complex ones have in common. `each` applies a function of real tensors to the
// parts of a number.
template <class Function>
Term each(Term x, const Function& function) {
  return function(x);
}
using ops::each;
Term real_part(Term x) { return x; }
Term real_part(const Complex& z) { return z.re; }
Term conjugate(Term x) { return x; }
using ops::conjugate;
Term quotient(Term x, Term y) { return x / y; }
Complex quotient(const Complex& x, const Complex& y) { return x * reciprocal(y); }
// A size by which pivots are compared.
Term pivot_size(Term x) { return abs(x); }
Term pivot_size(const Complex& z) { return abs(z.re) + abs(z.im); }
Term absolute(Term x) { return abs(x); }
Term absolute(const Complex& z) { return length(z); }
// The number divided by its absolute value; 0 of 0.
Term direction(Term x) { return apply(OpKind::kSign, x); }
Complex direction(const Complex& z) {
  const Term size = length(z);
  return each(z, [&](Term t) { return select(equal(size, 0), 0, t / size); });
}
Term or_one(Term x) { return select(equal(x, 0), 1, x); }
Complex or_one(const Complex& z) {
  return select(logical_and(equal(z.re, 0), equal(z.im, 0)), number_like(z, 1, 0), z);
}
// `here`: the elements of a Hermitian matrix that are on its diagonal, which is real.
Term with_real(Term x, Term) { return x; }
Complex with_real(const Complex& z, Term here) { return {z.re, select(here, 0, z.im)}; }

// The numbers that a loop carries, part by part.
void carry(std::vector<ValueId>& to, Term x) { to.push_back(x.id()); }
void carry(std::vector<ValueId>& to, const Complex& z) { to.insert(to.end(), {z.re.id(), z.im.id()}); }
class Carried {
 public:
  Carried(Builder& b, const std::vector<ValueId>& values) : b_(b), values_(values) {}
  template <class T>
  T next() {
    if constexpr (std::is_same_v<T, Term>) {
      return {b_, values_.at(at_++)};
    } else {
      const Term re = next<Term>();
      return {re, next<Term>()};
    }
  }

 private:
  Builder& b_;
  const std::vector<ValueId>& values_;
  size_t at_ = 0;
};
template <class T>
T filled_with(Builder& b, const graph::Shape& shape, DType dtype, double value) {
  if constexpr (std::is_same_v<T, Term>)
    return filled(b, shape, dtype, value);
  else
    return {filled(b, shape, dtype, value), filled(b, shape, dtype, 0)};
}

template <class T>
struct Eliminated {
  T rows;                        // [batch, n, columns]: starts with the identity if the matrix is invertible
  T determinant;                 // [batch]; with `logs` divided by its absolute value
  std::optional<Term> log = {};  // of the absolute value
};

// matrix [batch, n, columns], columns >= n. A column without a pivot makes the determinant 0 and, with
// `divide`, some rows non-finite.
template <class T>
Eliminated<T> eliminate(const T& matrix, bool divide, bool logs = false) {
  const Term real = real_part(matrix);
  Builder& b = real.builder();
  const sym::Expr batch = real.dim(0), n = real.dim(1);
  const Term row = index_along(b, {1, n}, 1, DType::kI64);
  std::vector<ValueId> carried;
  carry(carried, matrix);
  carry(carried, filled_with<T>(b, {batch}, real.dtype(), 1));
  if (logs) carry(carried, filled(b, {batch}, real.dtype(), 0));
  const LoopResult result = loop(b, n, std::nullopt, carried, [&](const LoopState& state) {
    Carried in(b, state.carried);
    const T m = in.next<T>(), done = in.next<T>();
    const Term step(b, state.counter_value);
    const auto at_column = [&](Term t) { return slice(t, 2, state.counter, 1); };
    const T column = each(m, [&](Term t) { return squeeze(at_column(t), {2}); });  // [batch, n]
    const Term size = select(greater_equal(row, step), pivot_size(column), -1);
    const Term best = arg_max(size, 1);
    const Term at = unsqueeze(best, {1});  // [batch, 1]
    // Swaps the row of the best pivot with the row of this step.
    const Term order = select(equal(row, step), at, select(equal(row, at), step, row));
    const T moved = each(m, [&](Term t) { return gather(t, order, 1, 1); });
    const T pivot_row =
        each(moved, [&](Term t) { return slice(t, 1, state.counter, 1); });  // [batch, 1, columns]
    const T pivot = each(pivot_row, [&](Term t) { return reshape(at_column(t), {batch}); });
    const T divisor = divide ? pivot : or_one(pivot);
    const T unit = quotient(pivot_row, each(divisor, [&](Term t) { return reshape(t, {batch, 1, 1}); }));
    const T factor = each(moved, at_column);  // [batch, n, 1]
    const T next = select(unsqueeze(equal(row, step), {2}), unit, moved - factor * unit);
    const Term sign = select(logical_not(equal(best, step)), number_like(real_part(pivot), -1),
                             number_like(real_part(pivot), 1));
    const T part = logs ? direction(pivot) : pivot;
    LoopStep out{.condition = std::nullopt, .carried = {}, .stacked = {}};
    carry(out.carried, next);
    carry(out.carried, each(done * part, [&](Term t) { return t * sign; }));
    if (logs) carry(out.carried, in.next<Term>() + log(absolute(pivot)));
    return out;
  });
  Carried out(b, result.carried);
  Eliminated<T> made{out.next<T>(), out.next<T>()};
  if (logs) made.log = out.next<Term>();
  return made;
}

template <class T>
struct Square {
  T matrices;  // [batch, n, n]
  graph::Shape outer;
  sym::Expr n;
};
template <class T>
Square<T> square_of(const T& x) {
  const Term real = real_part(x);
  Builder& b = real.builder();
  if (real.rank() < 2) does_not_fit(cat("expected a matrix, not ", to_string(real.shape())));
  const int64_t last = real.rank() - 1;
  const sym::Expr n = real.dim(last);
  b.require(sym::eq(real.dim(last - 1), n), "a matrix of {0} x {1} is not square", {real.dim(last - 1), n});
  const graph::Shape outer(real.shape().begin(), real.shape().end() - 2);
  return {each(x, [&](Term t) { return reshape(widen(t), {count(outer), n, n}); }), outer, n};
}

template <class T>
T shaped(const T& x, const graph::Shape& shape, DType dtype) {
  return each(x, [&](Term t) { return cast(reshape(t, shape), dtype); });
}

template <class T>
T determinant_of(const T& x) {
  const Square<T> s = square_of(x);
  const DType dtype = real_part(x).dtype();
  if (s.n.is_const(0)) return filled_with<T>(real_part(x).builder(), s.outer, dtype, 1);
  return shaped(eliminate(s.matrices, false).determinant, s.outer, dtype);
}

template <class T>
SignedLog<T> log_determinant_of(const T& x) {
  const Square<T> s = square_of(x);
  const DType dtype = real_part(x).dtype();
  Builder& b = real_part(x).builder();
  if (s.n.is_const(0)) return {filled_with<T>(b, s.outer, dtype, 1), filled(b, s.outer, dtype, 0)};
  const Eliminated<T> e = eliminate(s.matrices, false, true);
  return {shaped(e.determinant, s.outer, dtype), shaped(*e.log, s.outer, dtype)};
}

template <class T>
T cholesky_of(const T& x) {
  const Term real = real_part(x);
  Builder& b = real.builder();
  const Square<T> s = square_of(x);
  if (s.n.is_const(0)) return x;
  const sym::Expr batch = real_part(s.matrices).dim(0), n = s.n;
  const Term row = index_along(b, {1, n}, 1, DType::kI64), column = index_along(b, {1, 1, n}, 2, DType::kI64);
  std::vector<ValueId> carried;
  carry(carried, s.matrices);
  carry(carried, filled_with<T>(b, {batch, n, n}, real_part(s.matrices).dtype(), 0));
  const LoopResult result = loop(b, n, std::nullopt, carried, [&](const LoopState& state) {
    Carried in(b, state.carried);
    const T rest = in.next<T>(), lower = in.next<T>();
    const Term step(b, state.counter_value);
    const T at = with_real(each(rest, [&](Term t) { return squeeze(slice(t, 2, state.counter, 1), {2}); }),
                           equal(row, step));  // [batch, n]
    const Term pivot = sqrt(slice(real_part(at), 1, state.counter, 1));
    const T own = each(at, [&](Term t) { return select(greater_equal(row, step), t / pivot, 0); });
    const T down = each(own, [](Term t) { return unsqueeze(t, {2}); }),
            across = each(own, [](Term t) { return unsqueeze(t, {1}); });
    LoopStep out{.condition = std::nullopt, .carried = {}, .stacked = {}};
    carry(out.carried, rest - down * conjugate(across));
    carry(out.carried, select(equal(column, step), down, lower));
    return out;
  });
  Carried out(b, result.carried);
  out.next<T>();
  return shaped(out.next<T>(), real.shape(), real.dtype());
}

}  // namespace

Term determinant(Term x) { return determinant_of(x); }
Complex determinant(const Complex& x) { return determinant_of(x); }
SignedLog<Term> log_determinant(Term x) { return log_determinant_of(x); }
SignedLog<Complex> log_determinant(const Complex& x) { return log_determinant_of(x); }
Term cholesky(Term x) { return cholesky_of(x); }
Complex cholesky(const Complex& x) { return cholesky_of(x); }

Term inverse(Term x) {
  Builder& b = x.builder();
  const Square<Term> s = square_of(x);
  if (s.matrices.dim(1).is_const(0)) return x;
  const sym::Expr batch = s.matrices.dim(0), n = s.matrices.dim(1);
  const Term unit =
      cast(equal(index_along(b, {n, 1}, 0, DType::kI64), index_along(b, {1, n}, 1, DType::kI64)),
           s.matrices.dtype());
  const Term rows = eliminate(concat({s.matrices, expand(unit, {batch, n, n})}, 2), true).rows;
  return cast(reshape(slice(rows, 2, n, n), x.shape()), x.dtype());
}

Term solve(Term a, Term given) {
  const Square<Term> s = square_of(a);
  const sym::Expr batch = s.matrices.dim(0), n = s.matrices.dim(1), k = given.dim(given.rank() - 1);
  if (n.is_const(0)) return given;
  const Term rows = eliminate(concat({s.matrices, reshape(widen(given), {batch, n, k})}, 2), true).rows;
  return cast(reshape(slice(rows, 2, n, k), given.shape()), given.dtype());
}

Term cross_product(Term x, Term y, int64_t dim) {
  const auto rotated = [&](Term t, int64_t by) {
    return concat({slice(t, dim, by, 3 - by), slice(t, dim, 0, by)}, dim);
  };
  return rotated(x, 1) * rotated(y, 2) - rotated(x, 2) * rotated(y, 1);
}

Term squared_distances(Term a, Term b) {
  return reduce_sum(square(unsqueeze(a, {1}) - unsqueeze(b, {0})), {2});
}

Term distances(Term a, Term b) { return sqrt(squared_distances(a, b)); }

}  // namespace stridec::ops
