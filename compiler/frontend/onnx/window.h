// The attributes that convolution and pooling share.
#pragma once

#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

struct Window {
  Shape size;  // of the window's spatial dims
  Dims strides, dilations;
  Shape before, after;  // padding that the node declares
  Shape extra;          // what rounding the output's size up needs at the end, beside it

  sym::Expr reach(size_t i) const {
    return (size[i] - 1) * dilations[i] + 1;
  }  // inputs from first to last tap
};

// For x [n, channels, spatial...] and a window of `size`: strides, dilations, pads, auto_pad, ceil_mode.
Window read_window(const Context& context, Term x, const Shape& size);

// [n, spatial..., channels] as [n, channels, spatial...], and back.
Term channels_second(Term x);
Term channels_last(Term x);
graph::Attributes window_attributes(const Window& window);

}  // namespace stridec::onnx
