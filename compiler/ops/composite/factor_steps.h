// What the factors of real and of complex matrices share: batches of matrices, and Jacobi's rotations.
#pragma once

#include <functional>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops::factors {

struct Batch {
  Term x;  // [batch, m, n]
  Shape outer;
  sym::Expr m, n, k;  // k = min(m, n)
};
Batch batch_of(Term x);
Batch square_batch_of(Term x);
// [batch, ...] with the outer dims in place of the batch.
Term restored(Term x, const Shape& outer, DType dtype);
Term rows_of(Builder& b, sym::Expr m);     // [1, m]
Term columns_of(Builder& b, sym::Expr n);  // [1, 1, n]
Term identity(const Batch& like, sym::Expr rows, sym::Expr columns);
// Where the diagonal of r [..., k, n], which is real, is negative: [..., 1, k].
Term negative_columns(Term r);
// The largest absolute value of each matrix, [batch, 1, 1]; 1 for zeros and for an empty matrix.
Term largest_or_one(const Batch& s);

// One round of disjoint rotations of all indices in pairs. `partner` [n] is the index itself in a round
// without an opponent.
struct Round {
  Term partner, first;
};

// The rotation that makes the product of columns i and partner 0: column i becomes c x - s y.
struct Rotation {
  Term c, s;
};
Rotation rotation(Term own, Term partner, Term product, Term first);

struct Rotated {
  std::vector<Term> next;
  Term off;  // how far the products are from 0
};
// Runs `round(pairs, carried)` until no product of a sweep exceeds `enough`.
std::vector<Term> run_rotations(Builder& b, sym::Expr n, const std::vector<Term>& start, double enough,
                                const std::function<Rotated(const Round&, const std::vector<Term>&)>& round);

}  // namespace stridec::ops::factors
