// Pooling over windows (window.h) or over all spatial dims of [n, channels, spatial...].
#pragma once

#include <optional>

#include "compiler/ops/composite/window.h"

namespace stridec::ops {

Term max_pool(Term x, const Window& window);
// The position of each window's maximum, i64: flat, row-major index in the spatial dims of x.
Term max_pool_positions(Term x, const Window& window);
// Converts such positions to ones that count spatial dims in column-major order.
Term column_major_positions(Term positions, const Shape& spatial);
// Converts positions in the plane of a channel (of `plane` elements) to flat indices of the whole tensor
// [n, channels, spatial...].
Term tensor_positions(Term positions, sym::Expr plane);

// The mean of each window: over the elements inside of x, or over padding, too.
Term average_pool(Term x, const Window& window, bool count_padding);
// (sum |x|^p)^(1/p) over each window, in f32 or wider.
Term lp_pool(Term x, const Window& window, double p);

Term global_average_pool(Term x);
Term global_max_pool(Term x);
Term global_lp_pool(Term x, double p);

// The inverse of max_pool: zeros, with the values of x at flat indices (as of tensor_positions()) of the
// result. A negative index is an error of the run.
//
// The result has the shape that the window gives, or `wanted`. Then the indices refer
// - to `wanted` if they are computed from a max_pool's positions: `wanted` restores the shape of the pooled
//   tensor, as in onnxruntime (core/providers/cpu/nn/Unpool.cc, pull request 2193) and PyTorch (max_unpool2d
//   with output_size);
// - to the window's shape otherwise, and the result is padded with zeros at the end, as in ONNX's test
//   maxunpool_export_with_output_shape and its reference implementation; to `wanted` if it is smaller in a
//   dim.
Term max_unpool(Term x, Term indices, const Window& window, const std::optional<Shape>& wanted);

}  // namespace stridec::ops
