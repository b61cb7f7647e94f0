// Sampling images at positions.
#include "compiler/frontend/aten/call.h"
#include "compiler/ops/composite/sampling.h"

namespace stridec::aten {
namespace {

using namespace ops;

Results grid_sampler(Context& c) {
  const Term image = c.in("input");
  const int64_t mode = c.integer("interpolation_mode"), padding = c.integer("padding_mode");
  if (mode < 0 || mode > 2 || padding < 0 || padding > 2) c.does_not_fit("an unknown mode of grid_sampler");
  using Mode = GridOptions::Mode;
  const Term wide = widen(image);
  const Term out = grid_sample(wide, cast(c.in("grid"), wide.dtype(), false),
                               {.mode = mode == 0   ? Mode::kLinear
                                        : mode == 1 ? Mode::kNearest
                                                    : Mode::kCubic,
                                .padding = padding == 0   ? SamplePadding::kZeros
                                           : padding == 1 ? SamplePadding::kBorder
                                                          : SamplePadding::kReflection,
                                .align_corners = c.flag("align_corners")});
  return {cast(out, image.dtype(), false)};
}

Results affine_grid_generator(Context& c) {
  return {affine_grid(c.in("theta"), c.sizes("size"), c.flag("align_corners"))};
}

constexpr Row kRows[] = {
    {"affine_grid_generator", affine_grid_generator},
    {"grid_sampler", grid_sampler},
    {"grid_sampler_2d", grid_sampler},
    {"grid_sampler_3d", grid_sampler},
};

}  // namespace

std::span<const Row> vision_rows() { return kRows; }

}  // namespace stridec::aten
