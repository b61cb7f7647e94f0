// Selection and placement by index. nodes.h has gather and scatter themselves.
#pragma once

#include <optional>

#include "compiler/ops/term.h"

namespace stridec::ops {

// `on` where the index equals the position along a new dim `dim` of size `depth`, else `off` (scalars).
// Negative indices count from the end; out-of-range ones give `off` everywhere.
Term one_hot(Term indices, sym::Expr depth, int64_t dim, Term off, Term on);

// The coordinates of nonzero elements, i64 [rank, count], in row-major order; rank 0 counts as [1]. `count`
// is bound at run time.
Term nonzero(Term x);
// The slices of x along dim whose element of `condition` [n], bool, is true. Their number is bound at run
// time.
Term compress(Term x, Term condition, int64_t dim);

// Reverses each row of dim `batch` along dim `time`, up to its own length (lengths [batch]).
Term reverse_sequence(Term x, Term lengths, int64_t batch, int64_t time);

// Writes `update` into `data` along dim, from the position `start` [batch] (none: 0) of each row of dim 0;
// `circular` continues at the front.
Term scatter_rows(Term data, Term update, std::optional<Term> start, int64_t dim, bool circular);

// The distinct elements of x [n], or the distinct slices of dim 0 of x [n, ...], in ascending (lexicographic)
// order or in order of first appearance. Their number is bound at run time. NaN equals NaN.
struct Unique {
  Term values;
  Term first;    // i64 [unique]: index of the first occurrence
  Term inverse;  // i64 [n]: index into values
  Term counts;   // i64 [unique]
};
Unique unique(Term x, bool sorted);
// The first of each run of equal elements, in x's order. NaN does not equal NaN.
Unique unique_runs(Term x);

}  // namespace stridec::ops
