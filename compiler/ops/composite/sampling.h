// Sampling images at computed positions: GridSample, affine grids, crop and resize.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

enum class SamplePadding { kZeros, kBorder, kReflection };

// Samples x [n, channels, spatial...] at positions: one f32 [n, outputs...] per spatial dim, in pixels. With
// `images` (i64 [regions]), positions are [regions, outputs...], and images[r] is the image of region r.
class Sampler {
 public:
  Sampler(Term x, SamplePadding padding, bool align_corners, std::optional<Term> images = {});

  // Moves positions inside the image as padding says, before interpolation: reflection reflects them; border
  // clamps them to two pixels outside, where all taps are at the border, as in PyTorch and onnxruntime
  // (ONNX's reference clamps cubic positions).
  Term bring_inside(Term position, size_t dim) const;
  // The pixels at whole positions: [n, channels, outputs...].
  Term at(const std::vector<Term>& index) const;
  // Sum over the taps of all dims; weight(distance) is zero beyond `reach`.
  Term interpolate(const std::vector<Term>& position, int reach,
                   const std::function<Term(Term)>& weight) const;

 private:
  Term pick(Term flat) const;
  Term clamp(Term i, size_t d) const;
  Term taps(const std::vector<Term>& position, std::vector<Term>& index, std::optional<Term> factor,
            int reach, const std::function<Term(Term)>& weight) const;

  Builder& b_;
  Term x_;
  SamplePadding padding_;
  std::optional<Term> first_row_;
  std::vector<Term> sizes_, low_, high_;
};

// Weights of linear interpolation (reach 1) and of Keys' cubic convolution with a = -3/4 (reach 2), by
// distance.
Term triangle_weight(Term distance);
Term cubic_weight(Term distance);

// x [n, channels, spatial...] at the positions of grid [n, outputs..., dims], whose last dim counts spatial
// dims from the last one. -1 and 1 are the centres of the corner pixels with `align_corners`, the image's
// edges otherwise.
struct GridOptions {
  enum class Mode { kNearest, kLinear, kCubic } mode = Mode::kLinear;
  SamplePadding padding = SamplePadding::kZeros;
  bool align_corners = false;
};
Term grid_sample(Term x, Term grid, const GridOptions& options);

// The grid [n, outputs..., dims] that theta [n, dims, dims + 1] maps the pixel positions (x, y, z; 1) of an
// image of `sizes` [n, channels, spatial...] to. Two or three spatial dims.
Term affine_grid(Term theta, const Shape& sizes, bool align_corners);

// Regions [n, 4] of images `batch` [n]: corners (low y, low x, high y, high x) as fractions of the image,
// sampled at the corners and evenly in between. Samples outside of the image are `extrapolation`. x has two
// spatial dims.
struct CropOptions {
  int64_t height = 1, width = 1;
  bool nearest = false;
  double extrapolation = 0;
};
Term crop_and_resize(Term x, Term regions, Term batch, const CropOptions& options);

}  // namespace stridec::ops
