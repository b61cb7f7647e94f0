// Counting by bins, and reducing by segments. Data are f32 or f64.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct Bounds {
  Term low, high;  // rank 0
};
// The least and the largest of numbers [n], n > 0.
Bounds bounds_of(Term x);
// The bounds, or bounds that are `margin` below and above them where they are equal.
Bounds apart(const Bounds& bounds, double margin);
// The edges of `bins` bins of equal width.
Term edges_between(const Bounds& bounds, int64_t bins);

// How many of x [n] are in each of `bins` bins of equal width, by a product of each number. A number at the
// high bound is in the last bin; what is outside, and NaN, is not counted.
Term equal_bins(Term x, const Bounds& bounds, int64_t bins);
// How many samples, or the sum of their weights [n], are in each cell between edges that ascend; a column
// [n] and edges [bins + 1] for each dim. `density`: divided by the sum and the cell's volume.
Term histogram(const std::vector<Term>& columns, const std::vector<Term>& edges, std::optional<Term> weight,
               bool density);

enum class SegmentReduction { kSum, kMean, kMax, kMin, kProd };
// The elements of x at starts <= i < ends along dim, reduced: starts and ends [x's dims before dim,
// segments]. Without `initial`, a mean of no elements is NaN.
Term segments(Term x, Term starts, Term ends, int64_t dim, SegmentReduction how,
              std::optional<double> initial);

}  // namespace stridec::ops
