// Factors of a product that are windows of images, as Hopper's copy engine walks them (tensor maps of mode im2col): the
// factor's lines are the images' windows in order, its depth is places in a window and channels, and what lies outside of
// an image is 0.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::kernels {

struct Im2col {
  // A spatial dim: its index is step * row + dilation * tap + lower, where row is a dim of the lines and tap, if there is
  // one, of the depth.
  struct Place {
    size_t dim;  // of the buffer
    sym::Expr row;
    std::optional<sym::Expr> tap;
    int step, dilation, lower;
    int upper;  // the last window starts at most this far from the last place of the image
  };
  std::vector<Place> places;  // the fastest first
  size_t image, channel;      // dims of the buffer
  sym::Expr first_channel;    // of the depth's channel 0; no dim of the lines or the depth moves it
};

constexpr int kIm2colBytes = 128;  // of channels that are copied at a time: a depth has a multiple of them

// `lines`, `depth`: dims of the factor, the fastest last. The load gives 0 where its mask does not hold.
std::optional<Im2col> match_im2col(const loop::Program& program, const loop::Access& access,
                                   const std::vector<loop::Dim>& lines, const std::vector<loop::Dim>& depth,
                                   const sym::Facts& facts);

}  // namespace stridec::kernels
