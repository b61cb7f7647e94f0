// Matches GEMM factors that are windows of images, as Hopper's TMA reads them (tensor maps of mode im2col):
// the factor's lines are the images' windows in order, its depth is taps and channels, and elements outside
// an image are 0.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::kernels {

struct Im2col {
  // A spatial dim: its index is step * row + lower + offset. `row` is a dim of the lines. `offset` counts
  // from the window's first element: dilation * tap, where `tap` is a dim of the depth, or dilation * (taps -
  // 1 - tap) in a window that is read backwards, as by the gradient of a convolution; 0 without a tap.
  struct Place {
    size_t dim;  // of the buffer
    sym::Expr row;
    sym::Expr offset = 0;
    int step, lower;
    int upper;  // the last window starts at most this far after the last index of the image
  };
  std::vector<Place> places;  // the fastest dim first
  size_t image, channel;      // dims of the buffer; a merged dim of images may exceed the buffer's
  // Buffer channel of the depth's channel 0; independent of the dims of the lines and the depth.
  sym::Expr first_channel;
};

// Channels are copied in units of this size, so a depth is a multiple of it.
constexpr int kIm2colBytes = 128;

// `lines`, `depth`: dims of the factor, the fastest last. The load has to give 0 where its mask does not
// hold.
std::optional<Im2col> match_im2col(const loop::Program& program, const loop::Access& access,
                                   const std::vector<loop::Dim>& lines, const std::vector<loop::Dim>& depth,
                                   const sym::Facts& facts);

}  // namespace stridec::kernels
