// Pooling of regions of interest. x [n, channels, h, w]; the result is [regions, channels, height, width].
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// He et al. 2017, arXiv:1703.06870. Regions [regions, 4]: x0, y0, x1, y1, times `spatial_scale`; batch
// [regions]: the image of each. Each region is a grid of bins; each bin is the mean or the maximum of a grid
// of bilinear samples. As ONNX says, the maximum is that of the weighted taps, not of the samples.
struct RoiAlignOptions {
  int64_t height = 1, width = 1;
  int64_t sampling_ratio = 0;  // samples per bin and dim; 0: the length of a bin, rounded up
  double spatial_scale = 1;
  bool half_pixel = true;  // shifts regions by -1/2; otherwise they are at least one pixel long
  bool maximum = false;
};
Term roi_align(Term x, Term regions, Term batch, const RoiAlignOptions& options);

// Girshick 2015, arXiv:1504.08083. Regions [regions, 5]: image, then corners as above, rounded to pixels. The
// maximum of each bin's pixels; bins overlap, because their bounds are rounded outwards. 0 for an empty bin.
struct RoiPoolOptions {
  int64_t height = 1, width = 1;
  double spatial_scale = 1;
};
Term max_roi_pool(Term x, Term regions, const RoiPoolOptions& options);

}  // namespace stridec::ops
