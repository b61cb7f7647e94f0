#include "compiler/ops/composite/sampling.h"

#include "compiler/base/text.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

namespace {

// Reflects x between two borders; a border position is not repeated.
Term reflect(Term x, Term low, Term high) {
  const Term range = maximum(high - low, 1e-20), period = range * 2.0;
  const Term t = apply(OpKind::kMod, x - low, period);
  return low + minimum(t, period - t);
}

}  // namespace

Sampler::Sampler(Term x, SamplePadding padding, bool align_corners, std::optional<Term> images)
    : b_(x.builder()), x_(x), padding_(padding) {
  for (int64_t d = 2; d < x.rank(); ++d) {
    const Term size = size_as(b_, DType::kF32, x.dim(d));
    sizes_.push_back(size);
    low_.push_back(number(b_, DType::kF32, align_corners ? 0 : -0.5));
    high_.push_back(size - (align_corners ? 1.0 : 0.5));
  }
  const sym::Expr pixels = count(x.shape(), 2, x.rank());
  if (!images) {
    x_ = reshape(x, {x.dim(0), x.dim(1), pixels});
    return;
  }
  // Avoids a copy of the image per region: x becomes rows of channels, with the first row of each image.
  Dims order{0};
  for (int64_t d = 2; d < x.rank(); ++d) order.push_back(d);
  order.push_back(1);
  x_ = reshape(permute(x, order), {x.dim(0) * pixels, x.dim(1)});
  const Term numbers = index_along(b_, {x.dim(0)}, 0, DType::kI64);
  first_row_ = gather(numbers, *images, 0) * size_as(b_, DType::kI64, pixels);
}

Term Sampler::bring_inside(Term position, size_t dim) const {
  if (padding_ == SamplePadding::kBorder) return minimum(maximum(position, -2), sizes_[dim] + 1.0);
  return padding_ == SamplePadding::kReflection ? reflect(position, low_[dim], high_[dim]) : position;
}

Term Sampler::at(const std::vector<Term>& index) const {
  Term flat = number_like(index[0], 0);
  std::optional<Term> valid;
  for (size_t d = 0; d < index.size(); ++d) {
    Term i = index[d];
    if (padding_ == SamplePadding::kZeros) {
      const Term inside = logical_and(greater_equal(i, 0), less(i, sizes_[d]));
      valid = valid ? logical_and(*valid, inside) : inside;
    }
    if (padding_ == SamplePadding::kReflection) i = apply(OpKind::kTrunc, reflect(i, low_[d], high_[d]));
    flat = flat * sizes_[d] + clamp(i, d);
  }
  const Term picked = pick(cast(flat, DType::kI64));
  return valid ? select(unsqueeze(*valid, {1}), picked, 0) : picked;
}

Term Sampler::interpolate(const std::vector<Term>& position, int reach,
                          const std::function<Term(Term)>& weight) const {
  std::vector<Term> index;
  return taps(position, index, std::nullopt, reach, weight);
}

// [n, channels, outputs...]
Term Sampler::pick(Term flat) const {
  if (!first_row_) return gather(x_, flat, 2, 1);
  Dims later, order{0, flat.rank()};
  for (int64_t d = 1; d < flat.rank(); ++d) {
    later.push_back(d);
    order.push_back(d);
  }
  return permute(gather(x_, flat + unsqueeze(*first_row_, later), 0), order);
}

Term Sampler::clamp(Term i, size_t d) const { return minimum(maximum(i, 0), sizes_[d] - 1.0); }

Term Sampler::taps(const std::vector<Term>& position, std::vector<Term>& index, std::optional<Term> factor,
                   int reach, const std::function<Term(Term)>& weight) const {
  const size_t d = index.size();
  if (d == position.size()) return at(index) * cast(unsqueeze(*factor, {1}), x_.dtype());
  const Term base = apply(OpKind::kFloor, position[d]);
  std::optional<Term> sum;
  for (int t = 1 - reach; t <= reach; ++t) {
    const Term i = base + static_cast<double>(t), w = weight(i - position[d]);
    index.push_back(i);
    const Term part = taps(position, index, factor ? *factor * w : w, reach, weight);
    index.pop_back();
    sum = sum ? *sum + part : part;
  }
  return *sum;
}

Term triangle_weight(Term distance) { return maximum(subtract_from(1, abs(distance)), 0); }
Term cubic_weight(Term distance) {
  const double a = -0.75;
  const Term d = abs(distance);
  const Term near = ((d * (a + 2) - (a + 3)) * d) * d + 1.0, far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a;
  return select(less_equal(d, 1), near, select(greater_equal(d, 2), 0, far));  // NaN stays NaN
}

Term affine_grid(Term given, const Shape& sizes, bool align) {
  Builder& b = given.builder();
  const Term theta = widen(given);
  const auto dims = static_cast<int64_t>(sizes.size()) - 2;
  if (dims != 2 && dims != 3) does_not_fit(cat("a size of ", sizes.size(), " numbers, not 4 or 5"));
  if (theta.rank() != 3) does_not_fit(cat("theta has ", theta.rank(), " dims, not 3"));
  const sym::Expr wanted[] = {sizes[0], dims, dims + 1};
  for (int64_t d = 0; d < 3; ++d)
    b.require(sym::eq(theta.dim(d), wanted[d]), cat("dim ", d, " of theta is {0}, not {1}"),
              {theta.dim(d), wanted[d]});
  Shape place(static_cast<size_t>(dims) + 2, 1);
  place.front() = sizes[0];
  place.back() = dims;
  const auto column = [&](int64_t j) { return reshape(slice(theta, 2, j, 1), place); };
  Term grid = column(dims);
  for (int64_t j = 0; j < dims; ++j) {
    const auto axis = static_cast<size_t>(dims - j);  // x belongs to the last axis
    Shape along(place.size(), 1);
    along[axis] = sizes[axis + 1];
    const Term i = cast(index_along(b, along, static_cast<int64_t>(axis), DType::kI64), theta.dtype()),
               size = size_as(b, theta.dtype(), sizes[axis + 1]);
    const Term position = align ? i * divide_into(2, maximum(size - 1.0, 1)) - 1.0
                                : i * divide_into(2, size) + (divide_into(1, size) - 1.0);
    grid = grid + column(j) * position;
  }
  return cast(grid, given.dtype());
}

Term grid_sample(Term x, Term given, const GridOptions& options) {
  Builder& b = x.builder();
  const Term grid = cast(given, DType::kF32);
  const bool nearest = options.mode == GridOptions::Mode::kNearest;
  const Sampler sampler(x, options.padding, options.align_corners);
  const int64_t last = grid.rank() - 1, dims = x.rank() - 2;
  b.require(sym::eq(grid.dim(last), dims), cat("a grid of {0} coordinates for ", dims, " spatial dims"),
            {grid.dim(last)});
  std::vector<Term> position;
  for (int64_t d = 0; d < dims; ++d) {
    const Term g = squeeze(slice(grid, last, dims - 1 - d, 1), {last}),
               size = size_as(b, DType::kF32, x.dim(d + 2));
    Term p = options.align_corners ? (g + 1.0) * 0.5 * (size - 1.0) : ((g + 1.0) * size - 1.0) * 0.5;
    if (nearest) p = apply(OpKind::kRound, p);
    position.push_back(sampler.bring_inside(p, static_cast<size_t>(d)));
  }
  if (nearest) return sampler.at(position);
  if (options.mode == GridOptions::Mode::kCubic) return sampler.interpolate(position, 2, cubic_weight);
  return sampler.interpolate(position, 1, triangle_weight);
}

Term crop_and_resize(Term x, Term given, Term batch, const CropOptions& options) {
  Builder& b = x.builder();
  const Term rois = cast(given, DType::kF32), images = cast(batch, DType::kI64);
  const int64_t crop[] = {options.height, options.width};
  if (crop[0] < 1 || crop[1] < 1) does_not_fit("a crop must have a positive height and width");
  const sym::Expr regions = rois.dim(0);
  const Shape all{regions, crop[0], crop[1]};
  std::vector<Term> position;
  std::optional<Term> outside;
  for (size_t d : {0, 1}) {
    const auto at = static_cast<int64_t>(d);
    const auto corner = [&](int64_t i) { return reshape(slice(rois, 1, i, 1), {regions, 1, 1}); };
    const Term last = size_as(b, DType::kF32, x.dim(at + 2)) - 1.0, low = corner(at), high = corner(at + 2);
    const Term i = cast(index_along(b, all, at + 1, DType::kI64), DType::kF32);
    const Term p = crop[d] > 1 ? low * last + i * ((high - low) * last / static_cast<double>(crop[d] - 1))
                               : expand((low + high) * 0.5 * last, all);
    const Term out = logical_or(less(p, 0), greater(p, last));
    outside = outside ? logical_or(*outside, out) : out;
    position.push_back(options.nearest ? apply(OpKind::kFloor, p + 0.5) : p);
  }
  const Sampler sampler(x, SamplePadding::kBorder, true, images);
  const Term samples =
      options.nearest ? sampler.at(position) : sampler.interpolate(position, 1, triangle_weight);
  return select(unsqueeze(*outside, {1}), options.extrapolation, samples);
}

}  // namespace stridec::ops
