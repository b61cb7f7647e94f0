// Terms that one primitive computes, with the primitive's attributes as arguments. compiler/graph/op_kind.def
// lists the primitives; term.h has those without attributes. Dims count from the front and are not negative.
#pragma once

#include <string>

#include "compiler/ops/term.h"

namespace stridec::ops {

// ---- indexing ----
// data at indices of any shape that has data's dims except in `dim`.
Term gather_elements(Term data, Term indices, int64_t dim, Negative negative = Negative::kFromEnd);
// indices [..., n] address n dims of data after `batch_dims`.
Term gather_nd(Term data, Term indices, int64_t batch_dims = 0);
// data with updates written at indices along dim. `reduction`: none (which of equal indices wins is not
// specified), add, mul, min or max.
Term scatter_elements(Term data, Term indices, Term updates, int64_t dim,
                      const std::string& reduction = "none", Negative negative = Negative::kFromEnd);
Term scatter_nd(Term data, Term indices, Term updates, const std::string& reduction = "none");
// The number of elements of `sorted` [n] (ascending) that are less than each element of x, as i64; with
// `right`, that are less or equal.
Term search_sorted(Term sorted, Term x, bool right = false);
// The coordinates of the true elements of a bool tensor, i64 [rank, count], in row-major order. `count` is a
// symbol that the run binds.
Term coordinates(Term truth, sym::Expr count);

// ---- scans and order ----
Term cumulative_sum(Term x, int64_t dim, bool exclusive = false, bool reverse = false);
Term cumulative_product(Term x, int64_t dim, bool exclusive = false, bool reverse = false);
// y[i] = a[i] * y[i - 1] + b[i] along dim, from 0; with `reverse` from the end.
Term linear_scan(Term a, Term b, int64_t dim, bool reverse = false);
// x moved by `places` along dim: zeros come in, and what leaves is dropped.
Term shifted(Term x, int64_t dim, int64_t places);
// The index along dim of the largest or smallest element, as i64 without dim: the first of equal ones, or the
// last if `last`.
Term arg_max(Term x, int64_t dim, bool last = false);
Term arg_min(Term x, int64_t dim, bool last = false);
struct Ordered {
  Term values, indices;  // indices are i64
};
// Sorts along dim, stably. NaN is larger than every number.
Ordered sort(Term x, int64_t dim, bool descending = false);
// The k largest or smallest elements along dim. They are in order if `sorted`.
Ordered top_k(Term x, int64_t dim, sym::Expr k, bool largest = true, bool sorted = true);

// ---- views ----
// Slices several dims: x[start : start + extent * step : step] of each dim, within bounds.
Term slice_dims(Term x, const Shape& starts, const Shape& extents, const Shape& steps);
// `mode`: constant (the rank-0 `value` of x's dtype), reflect, edge or wrap. Negative sizes crop.
Term pad(Term x, const Shape& before, const Shape& after, Term value, const std::string& mode);
// The bits of x as another dtype of the same width.
Term bitcast(Term x, DType to);

// ---- sources ----
// Uniform random numbers in [0, 1). `generator`: philox, counter-based, or mersenne, the stream of NumPy's
// RandomState. One seed gives the same numbers in every run.
Term random_uniform(Builder& b, const Shape& shape, DType dtype, int64_t seed,
                    const std::string& generator = {});

// ---- routines ----
// The discrete Fourier transform along n of [..., n, 2], f32 or f64: sum over j of x[j] e^(-2 pi i j k / n),
// not divided by n. `backward` uses the opposite sign. Bit-identical to NumPy unless n has a large prime
// factor.
Term fourier(Term x, bool backward);
// Decodes an encoded image, u8 [n], to pixels, u8 [height, width, channels]. `format` is "rgb", "bgr" or
// "grayscale". Height and width are bound at run time. The run fails with an error message if the bytes are
// no image or a damaged one.
Term decode_image(Term bytes, const std::string& format);
// The boxes that greedy non-maximum suppression keeps: bool [rows, n]. corners: f32 [rows, 4, n] (low x, low
// y, high x, high y) in order of preference; eligible: bool [rows, n]; most: i64 scalar; overlap: f32 scalar
// (loop/library.def).
Term suppress(Term corners, Term eligible, Term most, Term overlap);

}  // namespace stridec::ops
