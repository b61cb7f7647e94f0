// Window attributes shared by convolution and pooling.
#pragma once

#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

struct Window {
  Shape size;  // of the window's spatial dims
  Dims strides, dilations;
  Shape before, after;  // padding that the node declares
  Shape extra;          // end padding on top of `after`, from rounding the output size up

  // Input positions from the first to the last tap.
  sym::Expr reach(size_t i) const { return (size[i] - 1) * dilations[i] + 1; }
};

// Reads strides, dilations, pads, auto_pad and ceil_mode for x [n, channels, spatial...] and a window of
// `size`.
Window read_window(const Context& context, Term x, const Shape& size);

// Converts [n, spatial..., channels] to [n, channels, spatial...], and back.
Term channels_second(Term x);
Term channels_last(Term x);
graph::Attributes window_attributes(const Window& window);

}  // namespace stridec::onnx
