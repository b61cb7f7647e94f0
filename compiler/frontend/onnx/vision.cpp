// Sampling and detection: AffineGrid, GridSample, RoiAlign, MaxRoiPool, CropAndResize, DeformConv, Col2Im,
// NonMaxSuppression.
#include <algorithm>
#include <cctype>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/deformable.h"
#include "compiler/ops/composite/detection.h"
#include "compiler/ops/composite/roi.h"
#include "compiler/ops/composite/sampling.h"
#include "compiler/ops/composite/unfold.h"
#include "compiler/ops/nodes.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Outputs op_affine_grid(Context& c) {
  return {affine_grid(c.in(0), c.sizes_of(1, "size", 0, kLargestSize), c.integer("align_corners", 0) != 0)};
}

SamplePadding padding_of(const Context& c) {
  const std::string padding = c.text("padding_mode", "zeros");
  if (padding == "zeros") return SamplePadding::kZeros;
  if (padding == "border") return SamplePadding::kBorder;
  if (padding == "reflection") return SamplePadding::kReflection;
  c.does_not_fit("padding_mode is '" + padding + "', not zeros, border or reflection");
}

// "bilinear" and "bicubic" are names of older versions.
GridOptions::Mode mode_of(const Context& c) {
  const std::string mode = c.text("mode", "linear");
  if (mode == "nearest") return GridOptions::Mode::kNearest;
  if (mode == "linear" || mode == "bilinear") return GridOptions::Mode::kLinear;
  if (mode == "cubic" || mode == "bicubic") return GridOptions::Mode::kCubic;
  c.does_not_fit("mode is '" + mode + "', not linear, nearest or cubic");
}

Outputs op_grid_sample(Context& c) {
  return {grid_sample(
      c.in(0), c.in(1),
      {.mode = mode_of(c), .padding = padding_of(c), .align_corners = c.integer("align_corners", 0) != 0})};
}

Outputs deform_conv(Context& c) {
  const Term x = c.in(0), w = c.in(1), offset = c.in(2);
  const Window window = read_window(c, x, Shape(w.shape().begin() + 2, w.shape().end()));
  return {deformable_convolution(
      x, w, offset, c.optional(4), c.optional(3),
      {.window = window, .groups = c.integer("group", 1), .offset_groups = c.integer("offset_group", 1)})};
}

Outputs col2im(Context& c) {
  FoldOptions o{.image = c.sizes_of(1, "image_shape", 0, kLargestSize),
                .block = c.sizes_of(2, "block_shape", 1, kLargestSize),
                .strides = {},
                .dilations = {},
                .before = {},
                .after = {}};
  const size_t n = o.image.size();
  o.strides = c.integers("strides", Dims(n, 1));
  o.dilations = c.integers("dilations", Dims(n, 1));
  const Dims pads = c.integers("pads", Dims(2 * n, 0));
  if (pads.size() != 2 * n) c.does_not_fit("strides, dilations or pads do not fit image_shape");
  o.before = {pads.begin(), pads.begin() + static_cast<int64_t>(n)};
  o.after = {pads.begin() + static_cast<int64_t>(n), pads.end()};
  return {fold_blocks(c.in(0), o)};
}

Outputs op_roi_align(Context& c) {
  const bool half = c.version >= 16 && c.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  return {roi_align(c.in(0), c.in(1), c.in(2),
                    {.height = c.integer("output_height", 1),
                     .width = c.integer("output_width", 1),
                     .sampling_ratio = c.integer("sampling_ratio", 0),
                     .spatial_scale = c.number("spatial_scale", 1),
                     .half_pixel = half,
                     .maximum = c.text("mode", "avg") == "max"})};
}

Outputs op_crop_and_resize(Context& c) {
  const Dims crop = c.integers_of(3, "crop_size");
  if (crop.size() != 2) c.does_not_fit("crop_size must be two positive numbers");
  const std::string mode = c.text("mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest") c.does_not_fit(cat("mode is '", mode, "'"));
  return {crop_and_resize(c.in(0), c.in(1), c.in(2),
                          {.height = crop[0],
                           .width = crop[1],
                           .nearest = mode == "nearest",
                           .extrapolation = c.number("extrapolation_value", 0)})};
}

Outputs op_max_roi_pool(Context& c) {
  const Dims pooled = c.integers("pooled_shape");
  if (pooled.size() != 2) c.does_not_fit("pooled_shape must be two positive numbers");
  return {
      max_roi_pool(c.in(0), c.in(1),
                   {.height = pooled[0], .width = pooled[1], .spatial_scale = c.number("spatial_scale", 1)})};
}

Outputs op_non_max_suppression(Context& c) {
  const auto scalar = [&](size_t i, DType type) {
    return c.has(i) ? cast(reshape(c.in(i), {}), type) : c.number(type, 0);
  };
  SuppressionOptions o{.most = scalar(2, DType::kI64),
                       .overlap = scalar(3, DType::kF32),
                       .threshold = {},
                       .centers = c.integer("center_point_box", 0) != 0};
  if (c.has(4)) o.threshold = scalar(4, DType::kF32);
  return {non_max_suppression(c.in(0), c.in(1), o)};
}

Outputs image_decoder(Context& c) {
  std::string format = c.text("pixel_format", "RGB");
  std::transform(format.begin(), format.end(), format.begin(),
                 [](unsigned char x) { return std::tolower(x); });
  if (format != "rgb" && format != "bgr" && format != "grayscale")
    c.unsupported(cat("pixel_format is '", format, "', not RGB, BGR or Grayscale"));
  return {decode_image(c.in(0), format)};
}

constexpr Row kRows[] = {
    {"AffineGrid", op_affine_grid, 20},
    {"Col2Im", col2im},
    {"DeformConv", deform_conv, 19},
    {"ImageDecoder", image_decoder, 20},
    {"GridSample", op_grid_sample},
    {"GridSample", op_grid_sample, 1, kAnyLater, "com.microsoft"},
    {"NonMaxSuppression", op_non_max_suppression},
    {"CropAndResize", op_crop_and_resize, 1, kAnyLater, "com.microsoft"},
    {"MaxRoiPool", op_max_roi_pool},
    {"RoiAlign", op_roi_align},
};

}  // namespace

std::span<const Row> vision_rows() { return kRows; }

}  // namespace stridec::onnx
