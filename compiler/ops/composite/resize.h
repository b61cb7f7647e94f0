// Resizing along some dims, by sizes or by scales. resize.cpp lists the attributes of the resize node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct Rational {
  int64_t p, q;
};
// The simplest fraction within float precision: 0.6f becomes 3/5.
Rational nearest_rational(double value);
// The same for each element of a float tensor [n] known at run time: i64 [n], q >= 1. 0/1 if there is none
// (too large, too small, not a number).
struct Rationals {
  Term p, q;
};
Rationals nearest_rationals(Term values);

// A scale p / q.
struct Scale {
  sym::Expr p, q;
};

// A dim to resize. Without `scale`, the scale is out / in.
struct ResizeAxis {
  int64_t dim = 0;
  sym::Expr in = 1, out = 1;
  std::optional<Scale> scale;
};

// Option values have the names of ONNX's Resize.
struct ResizeOptions {
  std::string mode = "nearest", coordinates = "half_pixel", nearest = "round_prefer_floor";
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
  std::vector<Scale> roi;  // for tf_crop_and_resize: the starts of all axes, then their ends
};

// Computes the new sizes as floor(size * scale). Requires each scale to be positive and below 10^9.
std::vector<ResizeAxis> axes_from_scales(Term x, const Dims& dims, const std::vector<Scale>& scales);
// Treats the new sizes as bounds: replaces them by one scale for all axes, the smallest (`not_larger`) or the
// largest of the axes' scales.
void keep_aspect_ratio(graph::Builder& b, std::vector<ResizeAxis>& axes, bool not_larger);
// Throws Error kUnsupported for tf_half_pixel_for_nn unless the nearest mode is floor.
Term resize(Term x, std::vector<ResizeAxis> axes, ResizeOptions options);

}  // namespace stridec::ops
