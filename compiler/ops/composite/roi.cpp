#include "compiler/ops/composite/roi.h"

#include <limits>
#include <optional>
#include <vector>

#include "compiler/ops/composite/sampling.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

// Samples of RoiAlign in one dim: positions [regions, bins, samples]. If the number of samples depends on a
// region's length, `each` is that number, f32 [regions]; the remaining samples are ignored.
struct RoiSamples {
  Term position;
  sym::Expr most;
  std::optional<Term> each;
};
RoiSamples roi_samples(Term start, Term length, int64_t bins, int64_t ratio) {
  Builder& b = start.builder();
  constexpr int64_t kMostSamples = int64_t{1} << 24;
  const sym::Expr regions = start.dim(0);
  const Term width = length / static_cast<double>(bins);
  RoiSamples out{.position = start, .most = ratio, .each = {}};
  if (ratio <= 0) {
    out.each = maximum(apply(OpKind::kCeil, width), 0);
    const Term most = cast(maximum(reduce_max(*out.each, {0}), 0), DType::kI64);
    out.most = b.elements_of(most, "samples", 0, kMostSamples).at(0);
  }
  const Shape grid{regions, bins, out.most};
  const Term i = cast(index_along(b, grid, 1, DType::kI64), DType::kF32),
             s = cast(index_along(b, grid, 2, DType::kI64), DType::kF32);
  const auto column = [&](Term t) { return reshape(t, {regions, 1, 1}); };
  const Term bin = column(width);
  const Term within = out.each ? bin * (s + 0.5) / column(maximum(*out.each, 1))
                               : bin * ((s + 0.5) * (1.0 / static_cast<double>(ratio)));
  out.position = column(start) + bin * i + within;
  return out;
}

}  // namespace

Term roi_align(Term x, Term given, Term images, const RoiAlignOptions& options) {
  Builder& b = x.builder();
  const Term rois = cast(given, DType::kF32), batch = cast(images, DType::kI64);
  const int64_t height = options.height, width = options.width, ratio = options.sampling_ratio;
  const bool half = options.half_pixel;
  const double scale = options.spatial_scale, shift = half ? 0.5 : 0;
  const auto corner = [&](int64_t i) { return squeeze(slice(rois, 1, i, 1), {1}) * scale - shift; };
  const sym::Expr regions = rois.dim(0);
  const auto along = [&](int64_t first, int64_t bins) {
    const Term start = corner(first), length = corner(first + 2) - start;
    return roi_samples(start, half ? length : maximum(length, 1), bins, ratio);
  };
  const RoiSamples rows = along(1, height), columns = along(0, width);
  const Shape all{regions, height, width, rows.most, columns.most};
  const Term y = expand(reshape(rows.position, {regions, height, 1, rows.most, 1}), all),
             xx = expand(reshape(columns.position, {regions, 1, width, 1, columns.most}), all);
  const Term h = size_as(b, DType::kF32, x.dim(2)), w = size_as(b, DType::kF32, x.dim(3));
  const auto outside = [](Term p, Term size) { return logical_or(less(p, -1.0), greater(p, size)); };
  const Term nothing = logical_or(outside(y, h), outside(xx, w));
  const auto inside = [](Term p, Term size) { return minimum(maximum(p, 0), size - 1.0); };
  const Sampler sampler(x, SamplePadding::kBorder, true, batch);
  const std::vector<Term> position{inside(y, h), inside(xx, w)};
  const bool maximal = options.maximum;
  std::optional<Term> samples;  // [regions, channels, height, width, rows, columns]
  if (maximal) {                // ONNX takes the largest weighted tap, not the largest sample
    const Term y0 = apply(OpKind::kFloor, position[0]), x0 = apply(OpKind::kFloor, position[1]);
    for (int dy = 0; dy <= 1; ++dy) {
      for (int dx = 0; dx <= 1; ++dx) {
        const Term ty = y0 + static_cast<double>(dy), tx = x0 + static_cast<double>(dx);
        const Term weight = triangle_weight(ty - position[0]) * triangle_weight(tx - position[1]);
        const Term tap = sampler.at({ty, tx}) * cast(unsqueeze(weight, {1}), x.dtype());
        samples = samples ? maximum(*samples, tap) : tap;
      }
    }
  } else {
    samples = sampler.interpolate(position, 1, triangle_weight);
  }
  const Term values = select(unsqueeze(nothing, {1}), 0, *samples);
  if (!rows.each) return maximal ? reduce_max(values, {4, 5}) : reduce_mean(values, {4, 5});
  const auto has = [&](const RoiSamples& of, int64_t dim) {
    return less(index_along(b, all, dim, DType::kF32), reshape(*of.each, {regions, 1, 1, 1, 1}));
  };
  const Term counts = unsqueeze(logical_and(has(rows, 3), has(columns, 4)), {1});
  const Term number = reshape(*rows.each * *columns.each, {regions, 1, 1, 1});
  if (!maximal) {
    const Term sum = reduce_sum(widen(select(counts, values, 0)), {4, 5});
    return cast(sum / cast(maximum(number, 1), sum.dtype()), x.dtype());
  }
  const Term lowest = number_like(values, -std::numeric_limits<double>::infinity());
  const Term largest = reduce_max(select(counts, values, lowest), {4, 5});
  return select(greater(number, 0), largest, number_like(largest, 0));
}

Term max_roi_pool(Term x, Term given, const RoiPoolOptions& options) {
  Builder& b = x.builder();
  const Term rois = cast(given, DType::kF32);
  const int64_t pooled[] = {options.height, options.width};
  if (pooled[0] < 1 || pooled[1] < 1) does_not_fit("pooled_shape must be two positive numbers");
  const double scale = options.spatial_scale, lowest = -std::numeric_limits<double>::infinity();
  const sym::Expr regions = rois.dim(0);
  const Term batch = cast(reshape(slice(rois, 1, 0, 1), {regions}), DType::kI64);
  // Bool [regions, bins, size]: whether a pixel belongs to a bin.
  const auto members = [&](int64_t dim, int64_t bins) {
    const sym::Expr size = x.dim(dim + 2);
    const auto corner = [&](int64_t i) {  // rounds halves away from zero
      const Term p = reshape(slice(rois, 1, i, 1), {regions, 1, 1}) * scale;
      return apply(OpKind::kFloor, abs(p) + 0.5) * apply(OpKind::kSign, p);
    };
    const Term start = corner(2 - dim), end = corner(4 - dim);
    const Term bin = maximum(end - start + 1.0, 1) / static_cast<double>(bins);
    const Shape all{regions, bins, size};
    const Term i = cast(index_along(b, all, 1, DType::kI64), DType::kF32),
               at = cast(index_along(b, all, 2, DType::kI64), DType::kF32);
    return logical_and(greater_equal(at, apply(OpKind::kFloor, i * bin) + start),
                       less(at, apply(OpKind::kCeil, (i + 1.0) * bin) + start));
  };
  const Term rows = members(0, pooled[0]), columns = members(1, pooled[1]);
  const Term image = gather(x, batch, 0);  // [regions, channels, h, w]
  const Term wide = reduce_max(select(reshape(columns, {regions, 1, 1, pooled[1], x.dim(3)}),
                                      unsqueeze(image, {3}), number_like(image, lowest)),
                               {4});  // [regions, channels, h, bins]
  const Term y = reduce_max(select(reshape(rows, {regions, 1, pooled[0], x.dim(2), 1}), unsqueeze(wide, {2}),
                                   number_like(wide, lowest)),
                            {3});
  const auto any = [](Term t) { return reduce(OpKind::kReduceOr, t, {2}); };
  const Term filled = logical_and(reshape(any(rows), {regions, 1, pooled[0], 1}),
                                  reshape(any(columns), {regions, 1, 1, pooled[1]}));
  return select(filled, y, number_like(y, 0));
}

}  // namespace stridec::ops
