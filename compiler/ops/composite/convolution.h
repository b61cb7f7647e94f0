// Convolutions over [n, channels, spatial...] with any number of spatial dims.
#pragma once

#include <optional>
#include <string>

#include "compiler/ops/composite/window.h"

namespace stridec::ops {

// w [outputs, channels / groups, window...]; the window's size is that of w.
Term convolution(Term x, Term w, const Window& window, int64_t groups);

struct TransposedConvolution {
  Dims strides, dilations;
  Shape before, after;  // cropped from the full result; negative sizes pad
  Shape extra;          // rows at the end that no window covers
  int64_t groups = 1;
};
// w [channels, outputs / groups, window...]. The full result has (in - 1) * stride + (window - 1) * dilation
// + 1 + extra elements along a dim.
Term transposed_convolution(Term x, Term w, const TransposedConvolution& options);
// Sets before, after and extra of dim i so that the result has `size` elements there. Odd padding goes to the
// end with `upper`, else to the front. A size larger than the windows cover is extended at the end.
void set_output_size(Term x, Term w, TransposedConvolution& options, size_t i, sym::Expr size, bool upper);

// y [n, channels, spatial...] plus a bias [channels].
Term channel_bias(Term y, Term bias);

// Causal depthwise convolution of x [n, channels, length] with taps w [channels, 1, k], preceded by `past`,
// the (k - 1) * dilation positions before it (none: zeros). The number of channels need not be known.
struct CausalConvolution {
  Term value;  // of x's shape
  Term past;   // for the next call
};
CausalConvolution causal_convolution(Term x, Term w, std::optional<Term> bias, std::optional<Term> past,
                                     int64_t dilation);

}  // namespace stridec::ops
