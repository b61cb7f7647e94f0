// Reductions composed of sums and extrema. Each takes dims (an empty list reduces nothing) and `keep`,
// whether reduced dims stay with size 1. Results have x's dtype. Logarithms, roots and means are computed in
// f32 or wider, those of integers (but for the mean) in f64.
#pragma once

#include "compiler/ops/axes.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

using Reduction = Term (*)(Term x, const Dims& dims, bool keep);

Term max_along(Term x, const Dims& dims, bool keep);  // of bools: or
Term min_along(Term x, const Dims& dims, bool keep);  // of bools: and
Term product_along(Term x, const Dims& dims, bool keep);
Term mean_along(Term x, const Dims& dims, bool keep);
Term l1_norm(Term x, const Dims& dims, bool keep);
Term l2_norm(Term x, const Dims& dims, bool keep);
Term log_sum(Term x, const Dims& dims, bool keep);
Term log_sum_exp(Term x, const Dims& dims, bool keep);  // without overflow
Term sum_square(Term x, const Dims& dims, bool keep);

// A reduction along axes that may be known only at run time.
Term reduce_axes(Term x, const Axes& axes, bool keep, Reduction along);

// A cumulative sum or product along one axis that may be known only at run time.
enum class Scan { kSum, kProduct };
struct ScanOptions {
  Scan kind = Scan::kSum;
  bool exclusive = false, reverse = false;
};
Term scan_axis(Term x, const Axes& axis, const ScanOptions& options);

}  // namespace stridec::ops
