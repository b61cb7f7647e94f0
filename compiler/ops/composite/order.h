// Order statistics, and scans with any associative operation. x has at least one dim.
#pragma once

#include <functional>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

// Combines terms of a run of elements with those of the run that follows it.
using Combine =
    std::function<std::vector<Term>(const std::vector<Term>& earlier, const std::vector<Term>& later)>;
// The inclusive prefix scan along dim of terms of one shape, in log2(n) steps over whole tensors (Hillis and
// Steele 1986, doi:10.1145/7902.7903).
std::vector<Term> prefix_scan(std::vector<Term> x, int64_t dim, const Combine& combine);

struct Picked {
  Term values, indices;  // indices are i64
};
// The running maximum or minimum and its position, the last one of equal elements. NaN stays.
Picked cumulative_extreme(Term x, int64_t dim, bool largest);
// log(cumulative sum of e^x), in x's dtype.
Term log_cumulative_sum_exp(Term x, int64_t dim);

// Without dim. NaN is larger than every number.
Picked kth_value(Term x, int64_t dim, sym::Expr k);  // the k-th smallest, k counts from 1
// The lower of the two middle elements. A row with a NaN gives NaN, or, with `skip_nan`, the median of its
// numbers.
Picked median(Term x, int64_t dim, bool skip_nan);
// The most frequent element, the smallest of those, and its last position.
Picked mode(Term x, int64_t dim);

enum class Interpolation { kLinear, kLower, kHigher, kMidpoint, kNearest };
// Quantiles of floats, for q [] or [n] in [0, 1]: the dims of q, then those of x without dim. NaN as in
// median().
Term quantile(Term x, Term q, int64_t dim, Interpolation how, bool skip_nan);

}  // namespace stridec::ops
