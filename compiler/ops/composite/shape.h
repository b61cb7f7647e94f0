// Views and layouts whose sizes and axes may be known only at run time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/axes.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

// The elements of x, integers, as sizes in [lower, upper]: expressions, or symbols bound at run time. If the
// only limit is +-kLargestSize, larger values (the end of a slice) are equivalent to it.
std::vector<sym::Expr> size_values(Term x, const std::string& what, sym::Expr lower, sym::Expr upper);

// The shape of reshaping x to `given`: a size, -1 for the remaining size, and with `zero_copies` 0 for x's
// dim at the same position. Throws Error for a size below -1 and for -1 twice; guards check what is not
// known.
Shape reshape_target(Term x, const Shape& given, bool zero_copies);

// Without the axes, whose sizes are 1 (a guard checks it); with axes of size 1 (of a rank that includes
// them).
Term squeeze_axes(Term x, const Axes& axes);
Term unsqueeze_axes(Term x, const Axes& axes);
// Without the dims of size 1, so that the result's rank depends on sizes. If it is not known, it is `rank`,
// or the dims known to be 1 are removed, or the only dim that may be 1. Guards check the choice. `result`
// names the result in messages. Throws Error kUnsupported, with advice, if the rank remains open.
Term squeeze_ones(Term x, std::optional<int64_t> rank, const std::string& result);

// x[start:end:step] along each axis, by NumPy's rules: negative bounds count from the end, out-of-range ones
// are clamped; steps are not 0. The lists have one element per axis.
struct SliceBounds {
  std::vector<sym::Expr> starts, ends, steps;
};
Term slice_axes(Term x, const Axes& axes, const SliceBounds& bounds);

// Repeats x before and after each dim. Negative amounts crop first, so that what is left repeats, as in ONNX
// and PyTorch; of pad() in mode "wrap", what is cut off repeats as well.
Term wrap(Term x, graph::Shape before, graph::Shape after);
// Pads each axis; negative sizes crop. `mode` is that of pad() in nodes.h; `value` is a scalar.
struct AxisPadding {
  std::vector<sym::Expr> before, after;  // per axis
  std::string mode = "constant";
};
Term pad_axes(Term x, const Axes& axes, const AxisPadding& padding, Term value);

// Repeats x along each dim.
Term tile(Term x, const std::vector<sym::Expr>& repeats);
// Parts of the given sizes along dim. A guard checks their sum.
std::vector<Term> split_sizes(Term x, int64_t dim, const std::vector<sym::Expr>& sizes);
// Sizes of `parts` equal parts of a size; the last one may be shorter.
std::vector<sym::Expr> equal_parts(Builder& b, sym::Expr size, int64_t parts);

// Images [n, channels, h, w]: moves blocks of block * block channels to space, and back. `depth_first`: the
// channels of the result vary slowest in the blocks (CRD, PyTorch's pixel_shuffle), else fastest (DCR).
Term depth_to_space(Term x, int64_t block, bool depth_first);
Term space_to_depth(Term x, int64_t block);

}  // namespace stridec::ops
