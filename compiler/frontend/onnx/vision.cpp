// Sampling and detection: AffineGrid, GridSample, RoiAlign, MaxRoiPool, CropAndResize, DeformConv, Col2Im,
// NonMaxSuppression.
#include <functional>
#include <limits>
#include <numeric>

#include <algorithm>
#include <cctype>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/contraction.h"
#include "compiler/ops/nodes.h"

namespace stridec::onnx {
namespace {

using namespace ops;

// Reflects x between two borders; a border position is not repeated.
Term reflect(Term x, Term low, Term high) {
  const Term range = maximum(high - low, 1e-20), period = range * 2.0;
  const Term t = apply(OpKind::kMod, x - low, period);
  return low + minimum(t, period - t);
}

// Samples x [n, channels, spatial...] at positions (one f32 [n, outputs...] per spatial dim, in pixels). With
// `images` (i64 [regions]), positions are [regions, outputs...], and images[r] is the image of region r.
class Sampler {
 public:
  Sampler(const Context& c, Term x, std::string padding, bool align_corners, std::optional<Term> images = {})
      : b_(c.b), x_(x), padding_(std::move(padding)) {
    for (int64_t d = 2; d < x.rank(); ++d) {
      const Term size = size_as(b_, DType::kF32, x.dim(d));
      sizes_.push_back(size);
      low_.push_back(c.number(DType::kF32, align_corners ? 0 : -0.5));
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

  // With reflection, positions outside the image are reflected before interpolation. With border padding, the
  // taps are clamped; all are at the border if the position is two pixels outside (as in PyTorch and
  // onnxruntime; ONNX's reference clamps cubic positions).
  Term bring_inside(Term position, size_t dim) const {
    if (padding_ == "border") return minimum(maximum(position, -2), sizes_[dim] + 1.0);
    return padding_ == "reflection" ? reflect(position, low_[dim], high_[dim]) : position;
  }

  Term at(const std::vector<Term>& index) const {
    Term flat = number_like(index[0], 0);
    std::optional<Term> valid;
    for (size_t d = 0; d < index.size(); ++d) {
      Term i = index[d];
      if (padding_ == "zeros") {
        const Term inside = logical_and(greater_equal(i, 0), less(i, sizes_[d]));
        valid = valid ? logical_and(*valid, inside) : inside;
      }
      if (padding_ == "reflection") i = apply(OpKind::kTrunc, reflect(i, low_[d], high_[d]));
      flat = flat * sizes_[d] + clamp(i, d);
    }
    const Term picked = pick(cast(flat, DType::kI64));
    return valid ? select(unsqueeze(*valid, {1}), picked, 0) : picked;
  }

  // Sum over the taps of all dims; weight(distance) is zero beyond `reach`.
  Term interpolate(const std::vector<Term>& position, int reach,
                   const std::function<Term(Term)>& weight) const {
    std::vector<Term> index;
    return taps(position, index, std::nullopt, reach, weight);
  }

 private:
  // [n, channels, outputs...]
  Term pick(Term flat) const {
    if (!first_row_) return gather(x_, flat, 2, 1);
    Dims later, order{0, flat.rank()};
    for (int64_t d = 1; d < flat.rank(); ++d) {
      later.push_back(d);
      order.push_back(d);
    }
    return permute(gather(x_, flat + unsqueeze(*first_row_, later), 0), order);
  }

  Term clamp(Term i, size_t d) const { return minimum(maximum(i, 0), sizes_[d] - 1.0); }

  Term taps(const std::vector<Term>& position, std::vector<Term>& index, std::optional<Term> factor,
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

  Builder& b_;
  Term x_;
  std::string padding_;
  std::optional<Term> first_row_;
  std::vector<Term> sizes_, low_, high_;
};

Term triangle(Term distance) { return maximum(subtract_from(1, abs(distance)), 0); }
Term keys_cubic(Term distance) {
  const double a = -0.75;
  const Term d = abs(distance);
  const Term near = ((d * (a + 2) - (a + 3)) * d) * d + 1.0, far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a;
  return select(less_equal(d, 1), near, select(less(d, 2), far, 0));
}

// Applies theta [n, dims, dims + 1] to the pixel positions (x, y, z; 1) of an image. -1 and 1 are the centres
// of the corner pixels if align_corners is set, the image's edges otherwise.
Outputs affine_grid(Context& c) {
  const Term given = c.in(0), theta = widen(given);
  const std::vector<sym::Expr> sizes = c.sizes_of(1, "size", 0, kLargestSize);
  const bool align = c.integer("align_corners", 0) != 0;
  const auto dims = static_cast<int64_t>(sizes.size()) - 2;
  if (dims != 2 && dims != 3) c.does_not_fit(cat("a size of ", sizes.size(), " numbers, not 4 or 5"));
  if (theta.rank() != 3) c.does_not_fit(cat("theta has ", theta.rank(), " dims, not 3"));
  const sym::Expr wanted[] = {sizes[0], dims, dims + 1};
  for (int64_t d = 0; d < 3; ++d)
    c.b.require(sym::eq(theta.dim(d), wanted[d]), cat("dim ", d, " of theta is {0}, not {1}"),
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
    const Term i = cast(index_along(c.b, along, static_cast<int64_t>(axis), DType::kI64), theta.dtype()),
               size = size_as(c.b, theta.dtype(), sizes[axis + 1]);
    const Term position = align ? i * divide_into(2, maximum(size - 1.0, 1)) - 1.0
                                : i * divide_into(2, size) + (divide_into(1, size) - 1.0);
    grid = grid + column(j) * position;
  }
  return {cast(grid, given.dtype())};
}

Outputs grid_sample(Context& c) {
  const Term x = c.in(0), grid = cast(c.in(1), DType::kF32);
  const bool align = c.integer("align_corners", 0) != 0;
  const std::string mode = c.text("mode", "linear");
  const Sampler sampler(c, x, c.text("padding_mode", "zeros"), align);
  const int64_t last = grid.rank() - 1, dims = x.rank() - 2;
  c.b.require(sym::eq(grid.dim(last), dims), cat("a grid of {0} coordinates for ", dims, " spatial dims"),
              {grid.dim(last)});
  std::vector<Term> position;
  for (int64_t d = 0; d < dims; ++d) {
    const Term g = squeeze(slice(grid, last, dims - 1 - d, 1), {last}),
               size = size_as(c.b, DType::kF32, x.dim(d + 2));
    Term p = align ? (g + 1.0) * 0.5 * (size - 1.0) : ((g + 1.0) * size - 1.0) * 0.5;
    if (mode == "nearest") p = apply(OpKind::kRound, p);
    position.push_back(sampler.bring_inside(p, static_cast<size_t>(d)));
  }
  if (mode == "nearest") return {sampler.at(position)};
  if (mode == "cubic" || mode == "bicubic") return {sampler.interpolate(position, 2, keys_cubic)};
  return {sampler.interpolate(position, 1, triangle)};
}

// A convolution whose taps are displaced by offsets [n, groups * taps * 2, out...] and weighted by a mask.
// Samples are gathered first, then contracted as in any convolution.
Outputs deform_conv(Context& c) {
  const Term x = c.in(0), w = c.in(1), offset = c.in(2);
  if (x.rank() != 4) c.unsupported(cat("deformable convolution of a tensor of rank ", x.rank()));
  const Window window = read_window(c, x, Shape(w.shape().begin() + 2, w.shape().end()));
  const int64_t groups = c.integer("group", 1), offset_groups = c.integer("offset_group", 1);
  const sym::Expr n = x.dim(0), channels = x.dim(1), oh = offset.dim(2), ow = offset.dim(3), kh = w.dim(2),
                  kw = w.dim(3), taps = kh * kw, part = c.b.simplify(sym::floordiv(channels, offset_groups));
  c.b.require(sym::eq(part * offset_groups, channels), "{0} channels do not divide into offset groups",
              {channels});
  c.b.require(sym::eq(offset.dim(1), taps * (2 * offset_groups)), "offsets have {0} channels, not {1}",
              {offset.dim(1), taps * (2 * offset_groups)});
  const Term moved = cast(reshape(offset, {n * offset_groups, kh, kw, 2, oh, ow}), DType::kF32);
  const Term image = reshape(x, {n * offset_groups, part, x.dim(2), x.dim(3)});
  const Sampler sampler(c, image, "zeros", true);
  std::vector<Term> position;
  for (int64_t d = 0; d < 2; ++d) {
    const auto dim = static_cast<size_t>(d);
    Shape tap{1, 1, 1, 1, 1}, place{1, 1, 1, 1, 1};
    tap[dim + 1] = w.dim(d + 2);
    place[dim + 3] = offset.dim(d + 2);
    const Term grid = index_along(c.b, tap, d + 1, DType::kI64) * static_cast<double>(window.dilations[dim]) +
                      index_along(c.b, place, d + 3, DType::kI64) * static_cast<double>(window.strides[dim]) -
                      size_as(c.b, DType::kI64, window.before[dim]);
    position.push_back(squeeze(slice(moved, 3, d, 1), {3}) + cast(grid, DType::kF32));
  }
  Term samples = sampler.interpolate(position, 1, triangle);  // [n * offset_groups, part, kh, kw, oh, ow]
  if (c.has(4)) samples = samples * reshape(c.in(4), {n * offset_groups, 1, kh, kw, oh, ow});
  const sym::Expr outputs = c.b.simplify(sym::floordiv(w.dim(0), groups)), depth = w.dim(1) * taps;
  Term y = matmul(reshape(w, {1, groups, outputs, depth}), reshape(samples, {n, groups, depth, oh * ow}));
  y = reshape(y, {n, w.dim(0), oh, ow});
  if (c.has(3)) y = y + reshape(c.in(3), {w.dim(0), 1, 1});
  return {y};
}

// Sums one image per block element (their number is known): [n, channels, padded...]. x [n, channels *
// elements, places].
Term overlapped(Term x, sym::Expr channels, const Shape& block, const Shape& places, const Shape& padded,
                const Dims& strides, const Dims& dilations) {
  const size_t n = block.size();
  Shape apart{x.dim(0), channels};
  apart.insert(apart.end(), block.begin(), block.end());
  apart.insert(apart.end(), places.begin(), places.end());
  x = reshape(x, apart);
  std::optional<Term> sum;
  std::vector<int64_t> at(n, 0);
  for (bool more = true; more;) {
    Term part = x;
    for (size_t d = 0; d < n; ++d) part = squeeze(slice(part, 2, at[d], 1), {2});
    for (size_t d = 0; d < n; ++d) {
      const auto dim = static_cast<int64_t>(d) + 2;
      const sym::Expr reach = (places[d] - 1) * strides[d] + 1;
      const auto padded_along = [](Term t, int64_t along, sym::Expr before, sym::Expr after) {
        Shape low(t.shape().size(), 0), high = low;
        low[static_cast<size_t>(along)] = before, high[static_cast<size_t>(along)] = after;
        return pad(t, low, high, 0);
      };
      if (strides[d] > 1) {
        Shape wide = part.shape();
        wide[d + 2] = places[d] * strides[d];
        part = reshape(padded_along(unsqueeze(part, {dim + 1}), dim + 1, 0, strides[d] - 1), wide);
        part = slice(part, dim, 0, reach);
      }
      const sym::Expr before = at[d] * dilations[d];
      part = padded_along(part, dim, before, padded[d] - before - reach);
    }
    sum = sum ? *sum + part : part;
    more = false;
    for (size_t d = n; d-- > 0 && !more;) {
      more = ++at[d] < block[d].value();
      if (!more) at[d] = 0;
    }
  }
  return *sum;
}

// Col2Im: sums blocks where they overlap.
Outputs col2im(Context& c) {
  const Term x = c.in(0);
  const Shape image = c.sizes_of(1, "image_shape", 0, kLargestSize),
              block = c.sizes_of(2, "block_shape", 1, kLargestSize);
  const size_t n = image.size();
  const Dims strides = c.integers("strides", Dims(n, 1)), dilations = c.integers("dilations", Dims(n, 1)),
             pads = c.integers("pads", Dims(2 * n, 0));
  if (block.size() != n || strides.size() != n || dilations.size() != n || pads.size() != 2 * n)
    c.does_not_fit("strides, dilations or pads do not fit image_shape");
  // Sizes known only at run time are multiplied with each other, so even short expressions are replaced by
  // symbols.
  const auto size = [&](sym::Expr e, const char* hint) {
    return named(c.b, c.b.simplify(e), hint, 0, kLargestSize, 1);
  };
  const sym::Expr channels = size(sym::floordiv(x.dim(1), count(block)), "channels");
  Shape order, padded, places;
  for (size_t d = 0; d < n; ++d) {
    padded.push_back(size(image[d] + pads[d] + pads[d + n], "padded"));
    const sym::Expr room = padded[d] - dilations[d] * (block[d] - 1) - 1;
    c.b.require(sym::ge(room, 0), cat("a block does not fit in padded dim ", d, " of size {0}"), {padded[d]});
    places.push_back(size(sym::floordiv(room, strides[d]) + 1, "places"));
  }
  order.insert(order.end(), block.begin(), block.end());
  order.insert(order.end(), places.begin(), places.end());
  const auto cropped = [&](Term out) {
    for (size_t d = 0; d < n; ++d) out = slice(out, static_cast<int64_t>(d) + 2, pads[d], image[d]);
    return out;
  };
  constexpr int64_t kFewTaps = 64;
  const auto taps = sym::as_const(c.b.simplify(count(block)));
  if (taps && *taps <= kFewTaps)
    return {cropped(overlapped(x, channels, block, places, padded, strides, dilations))};
  // Flat index of element (tap, position) in the padded image.
  Term flat = filled(c.b, order, DType::kI64, 0);
  for (size_t d = 0; d < n; ++d) {
    const Term at =
        index_along(c.b, order, static_cast<int64_t>(d), DType::kI64) * static_cast<double>(dilations[d]) +
        index_along(c.b, order, static_cast<int64_t>(d + n), DType::kI64) * static_cast<double>(strides[d]);
    flat = flat * size_as(c.b, DType::kI64, padded[d]) + at;
  }
  const sym::Expr total = count(padded), each = count(order);
  const Term values = reshape(x, {x.dim(0), channels, each});
  const Term index = expand(reshape(flat, {1, 1, each}), values.shape());
  const Term zeros = filled(c.b, {x.dim(0), channels, total}, x.dtype(), 0);
  Term out(c.b, c.b.add1(OpKind::kScatterElements, {zeros.id(), index.id(), values.id()},
                         {{"dim", int64_t{2}}, {"reduction", std::string("add")}}));
  Shape shape{x.dim(0), channels};
  shape.insert(shape.end(), padded.begin(), padded.end());
  return {cropped(reshape(out, shape))};
}

// Samples of RoiAlign in one dim: positions [regions, bins, samples]. If the number of samples depends on a
// region's length, `each` is that number, f32 [regions]; the remaining samples are ignored.
struct RoiSamples {
  Term position;
  sym::Expr most;
  std::optional<Term> each;
};
RoiSamples roi_samples(const Context& c, Term start, Term length, int64_t bins, int64_t ratio) {
  constexpr int64_t kMostSamples = int64_t{1} << 24;
  const sym::Expr regions = start.dim(0);
  const Term width = length / static_cast<double>(bins);
  RoiSamples out{.position = start, .most = ratio, .each = {}};
  if (ratio <= 0) {
    out.each = maximum(apply(OpKind::kCeil, width), 0);
    const Term most = cast(maximum(reduce_max(*out.each, {0}), 0), DType::kI64);
    out.most = c.b.elements_of(most, "samples", 0, kMostSamples).at(0);
  }
  const Shape grid{regions, bins, out.most};
  const Term i = cast(index_along(c.b, grid, 1, DType::kI64), DType::kF32),
             s = cast(index_along(c.b, grid, 2, DType::kI64), DType::kF32);
  const auto column = [&](Term t) { return reshape(t, {regions, 1, 1}); };
  const Term bin = column(width);
  const Term within = out.each ? bin * (s + 0.5) / column(maximum(*out.each, 1))
                               : bin * ((s + 0.5) * (1.0 / static_cast<double>(ratio)));
  out.position = column(start) + bin * i + within;
  return out;
}

// Each region is a grid of bins; each bin is the mean or maximum of a grid of bilinear samples.
Outputs roi_align(Context& c) {
  const Term x = c.in(0), rois = cast(c.in(1), DType::kF32), batch = cast(c.in(2), DType::kI64);
  const int64_t height = c.integer("output_height", 1), width = c.integer("output_width", 1),
                ratio = c.integer("sampling_ratio", 0);
  const bool half = c.version >= 16 && c.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const double scale = c.number("spatial_scale", 1), shift = half ? 0.5 : 0;
  const auto corner = [&](int64_t i) { return squeeze(slice(rois, 1, i, 1), {1}) * scale - shift; };
  const sym::Expr regions = rois.dim(0);
  const auto along = [&](int64_t first, int64_t bins) {
    const Term start = corner(first), length = corner(first + 2) - start;
    return roi_samples(c, start, half ? length : maximum(length, 1), bins, ratio);
  };
  const RoiSamples rows = along(1, height), columns = along(0, width);
  const Shape all{regions, height, width, rows.most, columns.most};
  const Term y = expand(reshape(rows.position, {regions, height, 1, rows.most, 1}), all),
             xx = expand(reshape(columns.position, {regions, 1, width, 1, columns.most}), all);
  const Term h = size_as(c.b, DType::kF32, x.dim(2)), w = size_as(c.b, DType::kF32, x.dim(3));
  const auto outside = [](Term p, Term size) { return logical_or(less(p, -1.0), greater(p, size)); };
  const Term nothing = logical_or(outside(y, h), outside(xx, w));
  const auto inside = [](Term p, Term size) { return minimum(maximum(p, 0), size - 1.0); };
  const Sampler sampler(c, x, "border", true, batch);
  const std::vector<Term> position{inside(y, h), inside(xx, w)};
  const bool maximal = c.text("mode", "avg") == "max";
  std::optional<Term> samples;  // [regions, channels, height, width, rows, columns]
  if (maximal) {                // ONNX takes the largest weighted tap, not the largest sample
    const Term y0 = apply(OpKind::kFloor, position[0]), x0 = apply(OpKind::kFloor, position[1]);
    for (int dy = 0; dy <= 1; ++dy) {
      for (int dx = 0; dx <= 1; ++dx) {
        const Term ty = y0 + static_cast<double>(dy), tx = x0 + static_cast<double>(dx);
        const Term weight = triangle(ty - position[0]) * triangle(tx - position[1]);
        const Term tap = sampler.at({ty, tx}) * cast(unsqueeze(weight, {1}), x.dtype());
        samples = samples ? maximum(*samples, tap) : tap;
      }
    }
  } else {
    samples = sampler.interpolate(position, 1, triangle);
  }
  const Term values = select(unsqueeze(nothing, {1}), 0, *samples);
  if (!rows.each) return {maximal ? reduce_max(values, {4, 5}) : reduce_mean(values, {4, 5})};
  const auto has = [&](const RoiSamples& of, int64_t dim) {
    return less(index_along(c.b, all, dim, DType::kF32), reshape(*of.each, {regions, 1, 1, 1, 1}));
  };
  const Term counts = unsqueeze(logical_and(has(rows, 3), has(columns, 4)), {1});
  const Term number = reshape(*rows.each * *columns.each, {regions, 1, 1, 1});
  if (!maximal) {
    const Term sum = reduce_sum(widen(select(counts, values, 0)), {4, 5});
    return {cast(sum / cast(maximum(number, 1), sum.dtype()), x.dtype())};
  }
  const Term lowest = number_like(values, -std::numeric_limits<double>::infinity());
  const Term largest = reduce_max(select(counts, values, lowest), {4, 5});
  return {select(greater(number, 0), largest, number_like(largest, 0))};
}

// Regions [n, 4]: corners (y, x) as fractions of the image, sampled at the corners and evenly in between.
Outputs crop_and_resize(Context& c) {
  const Term x = c.in(0), rois = cast(c.in(1), DType::kF32), batch = cast(c.in(2), DType::kI64);
  const Dims crop = c.integers_of(3, "crop_size");
  if (crop.size() != 2 || crop[0] < 1 || crop[1] < 1) c.does_not_fit("crop_size is two positive numbers");
  const std::string mode = c.text("mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest") c.does_not_fit(cat("mode is '", mode, "'"));
  const sym::Expr regions = rois.dim(0);
  const Shape all{regions, crop[0], crop[1]};
  std::vector<Term> position;
  std::optional<Term> outside;
  for (size_t d : {0, 1}) {
    const auto at = static_cast<int64_t>(d);
    const auto corner = [&](int64_t i) { return reshape(slice(rois, 1, i, 1), {regions, 1, 1}); };
    const Term last = size_as(c.b, DType::kF32, x.dim(at + 2)) - 1.0, low = corner(at), high = corner(at + 2);
    const Term i = cast(index_along(c.b, all, at + 1, DType::kI64), DType::kF32);
    const Term p = crop[d] > 1 ? low * last + i * ((high - low) * last / static_cast<double>(crop[d] - 1))
                               : expand((low + high) * 0.5 * last, all);
    const Term out = logical_or(less(p, 0), greater(p, last));
    outside = outside ? logical_or(*outside, out) : out;
    position.push_back(mode == "nearest" ? apply(OpKind::kFloor, p + 0.5) : p);
  }
  const Sampler sampler(c, x, "border", true, batch);
  const Term samples = mode == "nearest" ? sampler.at(position) : sampler.interpolate(position, 1, triangle);
  return {select(unsqueeze(*outside, {1}), c.number("extrapolation_value", 0), samples)};
}

// The maximum of each bin's pixels, one dim at a time. Bins overlap, because their bounds are rounded
// outwards.
Outputs max_roi_pool(Context& c) {
  const Term x = c.in(0), rois = cast(c.in(1), DType::kF32);
  const Dims pooled = c.integers("pooled_shape");
  if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1)
    c.does_not_fit("pooled_shape is two positive numbers");
  const double scale = c.number("spatial_scale", 1), lowest = -std::numeric_limits<double>::infinity();
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
    const Term i = cast(index_along(c.b, all, 1, DType::kI64), DType::kF32),
               at = cast(index_along(c.b, all, 2, DType::kI64), DType::kF32);
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
  return {select(filled, y, number_like(y, 0))};
}

// Visits boxes in order of score; keeps a box unless it overlaps too much with one kept before. The size of
// the result is known only at run time.
Outputs non_max_suppression(Context& c) {
  const Term boxes = c.in(0), scores = c.in(1);
  const sym::Expr batch = boxes.dim(0), n = boxes.dim(1), classes = scores.dim(1);
  const auto scalar = [&](size_t i, double otherwise, DType type) {
    return c.has(i) ? cast(reshape(c.in(i), {}), type) : c.number(type, otherwise);
  };
  const Term most = scalar(2, 0, DType::kI64), overlap = scalar(3, 0, DType::kF32);
  const auto sorted =
      c.b.add(OpKind::kTopK, {scores.id()},
              {{"dim", int64_t{2}}, {"k", n}, {"largest", int64_t{1}}, {"sorted", int64_t{1}}});
  const Term score(c.b, sorted[0]), order(c.b, sorted[1]);  // [batch, classes, n]

  // Corners [batch, classes, n] in order of score.
  const auto part = [&](int64_t i) {
    const Term column = expand(reshape(slice(boxes, 2, i, 1), {batch, 1, n}), {batch, classes, n});
    return Term(c.b, c.b.add1(OpKind::kGatherElements, {column.id(), order.id()}, {{"dim", int64_t{2}}}));
  };
  const Term p = part(0), q = part(1), r = part(2), s = part(3);
  const bool center = c.integer("center_point_box", 0) != 0;
  const Term x0 = center ? p - r * 0.5 : minimum(q, s), x1 = center ? p + r * 0.5 : maximum(q, s);
  const Term y0 = center ? q - s * 0.5 : minimum(p, r), y1 = center ? q + s * 0.5 : maximum(p, r);
  const Term eligible =
      c.has(4) ? greater(score, scalar(4, 0, DType::kF32)) : filled(c.b, score.shape(), DType::kBool, 1);

  const sym::Expr rows_of_boxes = batch * classes;
  std::vector<Term> corners;
  for (const Term side : {x0, y0, x1, y1}) corners.push_back(cast(unsqueeze(side, {2}), DType::kF32));
  const Term kept = suppress(reshape(concat(corners, 2), {rows_of_boxes, 4, n}),
                             reshape(eligible, {rows_of_boxes, n}), most, overlap);
  const sym::Expr found = c.b.fresh_symbol("selected", 0, batch * classes * n);
  const Term at(c.b, c.b.add1(OpKind::kNonZero, {reshape(kept, score.shape()).id()},
                              {{"count", found}}));  // [3, found]
  const Term rows = transpose(at, 0, 1);
  const Term box(c.b, c.b.add1(OpKind::kGatherNd, {order.id(), rows.id()}, {{"batch_dims", int64_t{0}}}));
  return {concat({slice(rows, 1, 0, 2), unsqueeze(box, {1})}, 1)};
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
    {"AffineGrid", affine_grid, 20},
    {"Col2Im", col2im},
    {"DeformConv", deform_conv, 19},
    {"ImageDecoder", image_decoder, 20},
    {"GridSample", grid_sample},
    {"GridSample", grid_sample, 1, kAnyLater, "com.microsoft"},
    {"NonMaxSuppression", non_max_suppression},
    {"CropAndResize", crop_and_resize, 1, kAnyLater, "com.microsoft"},
    {"MaxRoiPool", max_roi_pool},
    {"RoiAlign", roi_align},
};

}  // namespace

std::span<const Row> vision_rows() { return kRows; }

}  // namespace stridec::onnx
