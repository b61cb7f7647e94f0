// Sampling images at positions.
#include "compiler/frontend/aten/call.h"
#include "compiler/ops/composite/detection.h"
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
  Term grid = cast(c.in("grid"), wide.dtype(), false);
  // PyTorch clips positions so that NaN becomes -1, where it clips them.
  if (mode != 2 && padding != 0) grid = select(apply(graph::OpKind::kIsNan, grid), -1, grid);
  const Term out = grid_sample(wide, grid,
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

// torchvision: the boxes that greedy suppression keeps, best first.
Results nms(Context& c) {
  const Term boxes = c.in("dets"), scores = c.in("scores");
  if (boxes.rank() != 2 || scores.rank() != 1) c.does_not_fit("nms takes boxes [n, 4] and scores [n]");
  const sym::Expr n = boxes.dim(0);
  const Term kept = non_max_suppression(unsqueeze(boxes, {0}), reshape(scores, {1, 1, n}),
                                        {.most = Term(c.b, c.b.elements({n}, {})),
                                         .overlap = c.scalar("iou_threshold", DType::kF32),
                                         .threshold = std::nullopt});
  return {squeeze(slice(kept, 1, 2, 1), {1})};
}

constexpr Row kRows[] = {
    {"affine_grid_generator", affine_grid_generator},
    {"grid_sampler", grid_sampler},
    {"grid_sampler_2d", grid_sampler},
    {"grid_sampler_3d", grid_sampler},
    {"nms", nms},
};

}  // namespace

std::span<const Row> vision_rows() { return kRows; }

}  // namespace stridec::aten
