// Window attributes shared by convolution and pooling.
#pragma once

#include "compiler/frontend/onnx/import_context.h"
#include "compiler/ops/composite/window.h"

namespace stridec::onnx {

// Reads strides, dilations, pads, auto_pad and ceil_mode for x [n, channels, spatial...] and a window of
// `size`.
ops::Window read_window(const Context& context, Term x, const Shape& size);

// Conv: x and w are inputs 0 and 1, an optional bias is input 2.
Term read_convolution(const Context& context, Term x, Term w, std::optional<Term> bias);

}  // namespace stridec::onnx
