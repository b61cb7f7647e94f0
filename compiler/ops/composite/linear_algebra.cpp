// Elimination takes one loop iteration per column.
#include "compiler/ops/composite/linear_algebra.h"

#include <optional>
#include <vector>

#include "compiler/base/text.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

struct Eliminated {
  Term rows;                     // [batch, n, columns]: starts with the identity if the matrix is invertible
  Term determinant;              // [batch]; with `logs` its sign
  std::optional<Term> log = {};  // of the determinant's size
};

// matrix [batch, n, columns], columns >= n. A column without a pivot makes the determinant 0 and, with
// `divide`, some rows non-finite.
Eliminated eliminate(Term matrix, bool divide, bool logs = false) {
  Builder& b = matrix.builder();
  const sym::Expr batch = matrix.dim(0), n = matrix.dim(1);
  const Term row = index_along(b, {1, n}, 1, DType::kI64);
  std::vector<ValueId> carried{matrix.id(), filled(b, {batch}, matrix.dtype(), 1).id()};
  if (logs) carried.push_back(filled(b, {batch}, matrix.dtype(), 0).id());
  const LoopResult result = loop(b, n, std::nullopt, carried, [&](const LoopState& state) {
    const Term m(b, state.carried[0]), step(b, state.counter_value);
    const Term column = squeeze(slice(m, 2, state.counter, 1), {2});  // [batch, n]
    const Term open = greater_equal(row, step);
    const Term size = select(open, abs(column), -1);
    const Term best = arg_max(size, 1);
    const Term at = unsqueeze(best, {1});  // [batch, 1]
    // Swaps the row of the best pivot with the row of this step.
    const Term order = select(equal(row, step), at, select(equal(row, at), step, row));
    const Term moved = gather(m, order, 1, 1);
    const Term pivot_row = slice(moved, 1, state.counter, 1);                    // [batch, 1, columns]
    const Term pivot = reshape(slice(pivot_row, 2, state.counter, 1), {batch});  // [batch]
    const Term divisor = divide ? pivot : select(equal(pivot, 0), 1, pivot);
    const Term unit = pivot_row / reshape(divisor, {batch, 1, 1});
    const Term factor = slice(moved, 2, state.counter, 1);  // [batch, n, 1]
    const Term here = unsqueeze(equal(row, step), {2});
    const Term next = select(here, unit, moved - factor * unit);
    const Term exchanged = logical_not(equal(best, step));
    const Term sign = select(exchanged, number_like(pivot, -1), number_like(pivot, 1));
    const Term part = logs ? apply(OpKind::kSign, pivot) : pivot;
    LoopStep out{.condition = std::nullopt,
                 .carried = {next.id(), (Term(b, state.carried[1]) * part * sign).id()},
                 .stacked = {}};
    if (logs) out.carried.push_back((Term(b, state.carried[2]) + log(abs(pivot))).id());
    return out;
  });
  Eliminated out{Term(b, result.carried[0]), Term(b, result.carried[1])};
  if (logs) out.log = Term(b, result.carried[2]);
  return out;
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

Term solve(Term a, Term given) {
  const Square s = square_of(a);
  const sym::Expr batch = s.matrices.dim(0), n = s.matrices.dim(1), k = given.dim(given.rank() - 1);
  if (n.is_const(0)) return given;
  const Term rows = eliminate(concat({s.matrices, reshape(widen(given), {batch, n, k})}, 2), true).rows;
  return cast(reshape(slice(rows, 2, n, k), given.shape()), given.dtype());
}

SignedLog log_determinant(Term x) {
  Builder& b = x.builder();
  const Square s = square_of(x);
  const sym::Expr n = s.matrices.dim(1);
  const auto shaped = [&](Term t) { return cast(reshape(t, s.outer), x.dtype()); };
  if (n.is_const(0)) return {filled(b, s.outer, x.dtype(), 1), filled(b, s.outer, x.dtype(), 0)};
  const Eliminated e = eliminate(s.matrices, false, true);
  return {shaped(e.determinant), shaped(*e.log)};
}

Term cholesky(Term x) {
  Builder& b = x.builder();
  const Square s = square_of(x);
  const sym::Expr batch = s.matrices.dim(0), n = s.matrices.dim(1);
  if (n.is_const(0)) return x;
  const Term row = index_along(b, {1, n}, 1, DType::kI64), column = index_along(b, {1, 1, n}, 2, DType::kI64);
  const Term none = filled(b, {batch, n, n}, s.matrices.dtype(), 0);
  const LoopResult result =
      loop(b, n, std::nullopt, {s.matrices.id(), none.id()}, [&](const LoopState& state) {
        const Term rest(b, state.carried[0]), lower(b, state.carried[1]), step(b, state.counter_value);
        const Term at = squeeze(slice(rest, 2, state.counter, 1), {2});  // [batch, n]
        const Term pivot = sqrt(slice(at, 1, state.counter, 1));
        const Term own = select(greater_equal(row, step), at / pivot, 0);
        const Term next = rest - unsqueeze(own, {2}) * unsqueeze(own, {1});
        const Term grown = select(equal(column, step), unsqueeze(own, {2}), lower);
        return LoopStep{.condition = std::nullopt, .carried = {next.id(), grown.id()}, .stacked = {}};
      });
  return cast(reshape(Term(b, result.carried[1]), x.shape()), x.dtype());
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

}  // namespace stridec::ops
