// Windows that convolution and pooling move over the spatial dims of [n, channels, spatial...].
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

struct Window {
  Shape size;  // of the window's spatial dims
  Dims strides, dilations;
  Shape before, after;  // padding
  Shape extra;          // end padding on top of `after`, from rounding the output size up

  // Input positions from the first to the last tap.
  sym::Expr reach(size_t i) const { return (size[i] - 1) * dilations[i] + 1; }
  graph::Attributes attributes() const;  // of the primitives that move windows
};

// Checks the window against the rank of x, and that strides and dilations are positive and of its rank. The
// window has no padding.
Window window_over(Term x, const Shape& size, Dims strides, Dims dilations);
// Pads so that the output size is input / stride, rounded up. Odd padding goes to the end, or with `upper` =
// false to the front.
void pad_same(Term x, Window& window, bool upper);
// Rounds the output size up (ceil_mode): a window may end in extra padding, but must not start in the end
// padding.
void round_up(Term x, Window& window);

// Converts [n, spatial..., channels] to [n, channels, spatial...], and back.
Term channels_second(Term x);
Term channels_last(Term x);

}  // namespace stridec::ops
