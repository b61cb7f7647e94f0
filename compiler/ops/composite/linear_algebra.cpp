// Elimination takes one loop iteration per column.
#include "compiler/ops/composite/linear_algebra.h"

#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

struct Eliminated {
  Term rows;         // [batch, n, columns]: starts with the identity if the matrix is invertible
  Term determinant;  // [batch]
};

// matrix [batch, n, columns], columns >= n. A column without a pivot makes the determinant 0 and, with
// `divide`, some rows non-finite.
Eliminated eliminate(Term matrix, bool divide) {
  Builder& b = matrix.builder();
  const sym::Expr batch = matrix.dim(0), n = matrix.dim(1);
  const Term row = index_along(b, {1, n}, 1, DType::kI64);
  const LoopResult result =
      loop(b, n, std::nullopt, {matrix.id(), filled(b, {batch}, matrix.dtype(), 1).id()},
           [&](const LoopState& state) {
             const Term m(b, state.carried[0]), step(b, state.counter_value);
             const Term column = squeeze(slice(m, 2, state.counter, 1), {2});  // [batch, n]
             const Term open = greater_equal(row, step);
             const Term size = select(open, abs(column), -1);
             const Term best = arg_max(size, 1);
             const Term at = unsqueeze(best, {1});  // [batch, 1]
             // Swaps the row of the best pivot with the row of this step.
             const Term order = select(equal(row, step), at, select(equal(row, at), step, row));
             const Term moved = gather(m, order, 1, 1);
             const Term pivot_row = slice(moved, 1, state.counter, 1);  // [batch, 1, columns]
             const Term pivot = reshape(slice(pivot_row, 2, state.counter, 1), {batch});  // [batch]
             const Term divisor = divide ? pivot : select(equal(pivot, 0), 1, pivot);
             const Term unit = pivot_row / reshape(divisor, {batch, 1, 1});
             const Term factor = slice(moved, 2, state.counter, 1);  // [batch, n, 1]
             const Term here = unsqueeze(equal(row, step), {2});
             const Term next = select(here, unit, moved - factor * unit);
             const Term exchanged = logical_not(equal(best, step));
             const Term sign = select(exchanged, number_like(pivot, -1), number_like(pivot, 1));
             return LoopStep{.condition = std::nullopt,
                             .carried = {next.id(), (Term(b, state.carried[1]) * pivot * sign).id()},
                             .stacked = {}};
           });
  return {Term(b, result.carried[0]), Term(b, result.carried[1])};
}

struct Square {
  Term matrices;  // [batch, n, n]
  graph::Shape outer;
};
Square square_of(Term x) {
  Builder& b = x.builder();
  if (x.rank() < 2) does_not_fit(cat("a matrix is wanted, not ", to_string(x.shape())));
  const int64_t last = x.rank() - 1;
  b.require(sym::eq(x.dim(last - 1), x.dim(last)), "a matrix of {0} x {1} is not square",
            {x.dim(last - 1), x.dim(last)});
  const graph::Shape outer(x.shape().begin(), x.shape().end() - 2);
  return {reshape(widen(x), {count(outer), x.dim(last), x.dim(last)}), outer};
}

}  // namespace

Term determinant(Term x) {
  const Square s = square_of(x);
  if (s.matrices.dim(1).is_const(0)) return filled(x.builder(), s.outer, x.dtype(), 1);
  return cast(reshape(eliminate(s.matrices, false).determinant, s.outer), x.dtype());
}

Term inverse(Term x) {
  Builder& b = x.builder();
  const Square s = square_of(x);
  if (s.matrices.dim(1).is_const(0)) return x;
  const sym::Expr batch = s.matrices.dim(0), n = s.matrices.dim(1);
  const Term unit =
      cast(equal(index_along(b, {n, 1}, 0, DType::kI64), index_along(b, {1, n}, 1, DType::kI64)),
           s.matrices.dtype());
  const Term rows = eliminate(concat({s.matrices, expand(unit, {batch, n, n})}, 2), true).rows;
  return cast(reshape(slice(rows, 2, n, n), x.shape()), x.dtype());
}

Term squared_distances(Term a, Term b) {
  return reduce_sum(square(unsqueeze(a, {1}) - unsqueeze(b, {0})), {2});
}

}  // namespace stridec::ops
