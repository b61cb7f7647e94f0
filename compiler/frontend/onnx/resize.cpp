// Resize and Upsample: one dim after the other, each a weighted sum of gathers whose positions and weights
// are computed from the output's index (ONNX reference: onnx/reference/ops/op_resize.py).
#include <cmath>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite.h"

namespace stridec::onnx {
namespace {

using namespace ops;

struct Axis {
  int64_t dim = 0;
  sym::Expr in = 1, out = 1;
  std::optional<double> scale;  // where the node gives it; else out / in
  double roi_start = 0, roi_end = 1;
};

struct Options {
  std::string mode = "nearest", coordinates = "half_pixel", nearest = "round_prefer_floor";
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
};

// The position in the input, f32 [out], of each output index.
Term source_position(const Context& c, const Axis& axis, const Options& o) {
  const Term x = cast(index_along(c.b, {axis.out}, 0, DType::kI64), DType::kF32);
  const Term in = size_as(c.b, DType::kF32, axis.in), out = size_as(c.b, DType::kF32, axis.out);
  const Term scale = axis.scale ? c.number(DType::kF32, *axis.scale) : out / in;
  const Term length = axis.scale ? in * *axis.scale : out;  // of the output, before it is rounded down
  if (o.coordinates == "asymmetric") return x / scale;
  if (o.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / scale;
  if (o.coordinates == "align_corners") return select(equal(length, 1), 0, x * (in - 1.0) / (length - 1.0));
  if (o.coordinates == "pytorch_half_pixel")
    return select(equal(length, 1), number_like(x, -0.5), (x + 0.5) / scale - 0.5);
  if (o.coordinates == "half_pixel_symmetric")
    return (x + 0.5) / scale - 0.5 + (in * 0.5) * subtract_from(1, out / length);
  if (o.coordinates == "tf_crop_and_resize") {
    const double span = axis.roi_end - axis.roi_start;
    const Term inner =
        select(equal(length, 1), (in - 1.0) * (span / 2), x * (in - 1.0) * span / (length - 1.0));
    return inner + (in - 1.0) * axis.roi_start;
  }
  if (o.coordinates != "half_pixel")
    c.unsupported("coordinate_transformation_mode '" + o.coordinates + "' is unknown");
  return (x + 0.5) / scale - 0.5;
}

Term nearest_index(const Context& c, Term position, const std::string& mode) {
  if (mode == "floor") return apply(OpKind::kFloor, position);
  if (mode == "ceil") return apply(OpKind::kCeil, position);
  if (mode == "round_prefer_ceil") return apply(OpKind::kFloor, position + 0.5);
  if (mode == "round_prefer_floor") return apply(OpKind::kCeil, position - 0.5);
  c.unsupported("nearest_mode '" + mode + "' is unknown");
}

// The weight of a tap at `distance` from the position.
Term weight(Term distance, const Options& o) {
  const Term d = abs(distance);
  if (o.mode == "linear") return maximum(subtract_from(1, d), 0);
  // Keys' cubic convolution
  const double a = o.cubic_a;
  const Term near = ((d * (a + 2) - (a + 3)) * d) * d + 1.0;
  const Term far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a;
  return select(less_equal(d, 1), near, select(less(d, 2), far, 0));
}

Term along(Term vector, Term x, int64_t dim) {
  Shape shape(x.shape().size(), 1);
  shape[static_cast<size_t>(dim)] = vector.dim(0);
  return reshape(vector, shape);
}

Term resize_axis(const Context& c, Term x, const Axis& axis, const Options& o) {
  const Term in = size_as(c.b, DType::kF32, axis.in);
  const Term position = source_position(c, axis, o);
  const auto pick = [&](Term index) {
    const Term inside = cast(minimum(maximum(index, 0), in - 1.0), DType::kI64);
    return gather(x, inside, axis.dim);
  };
  const auto outside = [&](Term result) {
    if (o.coordinates != "tf_crop_and_resize") return result;
    const Term out = logical_or(less(position, 0), greater(position, in - 1.0));
    return select(along(out, x, axis.dim), o.extrapolation, result);
  };
  if (o.mode == "nearest") return outside(pick(nearest_index(c, position, o.nearest)));

  // Smoothing stretches the filter by the factor by which the image shrinks.
  double shrink = 1;
  if (o.antialias) {
    const auto in_size = sym::as_const(axis.in), out_size = sym::as_const(axis.out);
    if (!axis.scale && !(in_size && out_size))
      c.unsupported("antialiased resizing needs a scale that is known at compile time");
    shrink = std::min(
        1.0, axis.scale ? *axis.scale : static_cast<double>(*out_size) / static_cast<double>(*in_size));
  }
  const int support = o.mode == "linear" ? 1 : 2;
  const int first = shrink < 1 ? static_cast<int>(std::floor(-support / shrink)) + 1 : 1 - support;
  const Term base = apply(OpKind::kFloor, position), fraction = position - base;
  std::vector<Term> taps, weights;
  for (int t = first; t <= 1 - first; ++t) {
    const Term index = base + static_cast<double>(t);
    Term w = weight((subtract_from(t, fraction))*shrink, o);
    if (o.exclude_outside) w = select(logical_or(less(index, 0), greater(index, in - 1.0)), 0, w);
    taps.push_back(pick(index));
    weights.push_back(w);
  }
  if (o.exclude_outside || shrink < 1) {
    Term sum = weights[0];
    for (size_t i = 1; i < weights.size(); ++i) sum = sum + weights[i];
    for (Term& w : weights) w = w / sum;
  }
  Term out = taps[0] * cast(along(weights[0], x, axis.dim), x.dtype());
  for (size_t i = 1; i < taps.size(); ++i)
    out = out + taps[i] * cast(along(weights[i], x, axis.dim), x.dtype());
  return outside(out);
}

// Each input element becomes a run of equal ones: a view, no gather.
bool repeats_evenly(const Axis& axis, const Options& o) {
  if (o.mode != "nearest" || !axis.scale || *axis.scale < 1 || *axis.scale != std::floor(*axis.scale))
    return false;
  if (o.coordinates == "asymmetric") return o.nearest == "floor";
  return o.coordinates == "half_pixel" &&
         (o.nearest == "round_prefer_floor" || o.nearest == "round_prefer_ceil");
}

Term repeat(Term x, int64_t dim, int64_t times) {
  Shape joined = x.shape();
  joined[static_cast<size_t>(dim)] = joined[static_cast<size_t>(dim)] * times;
  const Term split = unsqueeze(x, {dim + 1});
  Shape stretched = split.shape();
  stretched[static_cast<size_t>(dim) + 1] = times;
  return reshape(expand(split, stretched), joined);
}

std::optional<std::vector<double>> constant_floats(const Context& c, size_t input) {
  if (!c.has(input)) return std::nullopt;
  const Term x = c.in(input);
  const graph::Value& value = c.b.graph()[x.id()];
  if (!value.data || !is_float(x.dtype())) return std::nullopt;
  std::vector<double> out;
  const auto width = static_cast<size_t>(byte_size(x.dtype()));
  for (size_t at = 0; at + width <= value.data->size; at += width)
    out.push_back(read_float(x.dtype(), value.data->bytes + at));
  return out;
}

Term resize_all(const Context& c, Term x, const std::vector<Axis>& axes, const Options& o) {
  Term out = widen(x);
  if (!is_float(out.dtype()) && o.mode != "nearest") out = cast(out, DType::kF32);
  for (const Axis& axis : axes) {
    const bool whole = o.coordinates != "tf_crop_and_resize" || (axis.roi_start == 0 && axis.roi_end == 1);
    if (axis.in == axis.out && whole && (!axis.scale || *axis.scale == 1)) continue;
    out = repeats_evenly(axis, o) ? repeat(out, axis.dim, static_cast<int64_t>(*axis.scale))
                                  : resize_axis(c, out, axis, o);
  }
  if (!is_float(x.dtype()) && is_float(out.dtype())) out = apply(OpKind::kRound, out);
  return cast(out, x.dtype());
}

// floor(in * scale); scales such as 0.6 are not exact, so that the product is nudged by their error.
sym::Expr scaled_size(const Context& c, sym::Expr in, double scale) {
  if (const auto n = sym::as_const(in))
    return static_cast<int64_t>(std::floor(static_cast<double>(*n) * scale + 1e-6));
  for (int64_t denominator = 1; denominator <= 64; ++denominator) {
    const double numerator = scale * static_cast<double>(denominator);
    if (std::abs(numerator - std::round(numerator)) < 1e-6 * numerator)
      return c.b.simplify(sym::floordiv(in * static_cast<int64_t>(std::round(numerator)), denominator));
  }
  c.unsupported(
      cat("a scale of ", scale, " of a dim that is not known at compile time is not a simple fraction"));
}

std::vector<Axis> axes_from_scales(const Context& c, Term x, const Dims& dims,
                                   const std::vector<double>& scales) {
  if (scales.size() != dims.size()) c.does_not_fit(cat(scales.size(), " scales for ", dims.size(), " dims"));
  std::vector<Axis> out;
  for (size_t i = 0; i < dims.size(); ++i)
    out.push_back({.dim = dims[i],
                   .in = x.dim(dims[i]),
                   .out = scaled_size(c, x.dim(dims[i]), scales[i]),
                   .scale = scales[i]});
  return out;
}

Dims every_dim(Term x) {
  Dims out;
  for (int64_t d = 0; d < x.rank(); ++d) out.push_back(d);
  return out;
}

Outputs resize(Context& c) {
  const Term x = c.in(0);
  Options o{
      .mode = c.text("mode", "nearest"),
      .coordinates = c.version < 11 ? "asymmetric" : c.text("coordinate_transformation_mode", "half_pixel"),
      .nearest = c.version < 11 ? "floor" : c.text("nearest_mode", "round_prefer_floor"),
      .cubic_a = c.number("cubic_coeff_a", -0.75),
      .extrapolation = c.number("extrapolation_value", 0),
      .exclude_outside = c.integer("exclude_outside", 0) != 0,
      .antialias = c.integer("antialias", 0) != 0};
  if (o.mode != "nearest" && o.mode != "linear" && o.mode != "cubic")
    c.unsupported("mode '" + o.mode + "' is unknown");
  const Dims dims = c.has_attribute("axes") ? c.axes(c.integers("axes"), x.rank()) : every_dim(x);
  const size_t scales_at = c.version < 11 ? 1 : 2;
  std::vector<Axis> axes;
  const auto scales = constant_floats(c, scales_at);
  if (scales && !scales->empty()) {
    axes = axes_from_scales(c, x, dims, *scales);
  } else if (c.version >= 11 && c.has(3)) {
    const auto sizes = c.sizes_of(3, "sizes", 1, int64_t{1} << 40);
    if (sizes.size() != dims.size()) c.does_not_fit(cat(sizes.size(), " sizes for ", dims.size(), " dims"));
    for (size_t i = 0; i < dims.size(); ++i)
      axes.push_back({.dim = dims[i], .in = x.dim(dims[i]), .out = sizes[i]});
    if (const std::string policy = c.text("keep_aspect_ratio_policy", "stretch"); policy != "stretch") {
      double best = policy == "not_larger" ? 1e30 : 0;
      for (const Axis& a : axes) {
        if (!a.in.is_const() || !a.out.is_const())
          c.unsupported("keeping the aspect ratio needs sizes that are known at compile time");
        const double ratio = static_cast<double>(a.out.value()) / static_cast<double>(a.in.value());
        best = policy == "not_larger" ? std::min(best, ratio) : std::max(best, ratio);
      }
      for (Axis& a : axes) {
        a.scale = best;
        a.out = static_cast<int64_t>(std::floor(best * static_cast<double>(a.in.value()) + 0.5));
      }
    }
  } else {
    c.unsupported("the scales of Resize must be known at compile time");
  }
  if (o.coordinates == "tf_crop_and_resize") {
    const auto roi = constant_floats(c, 1);
    if (!roi || roi->size() != 2 * dims.size())
      c.unsupported("the region of tf_crop_and_resize must be known at compile time");
    for (size_t i = 0; i < axes.size(); ++i) {
      axes[i].roi_start = (*roi)[i];
      axes[i].roi_end = (*roi)[i + dims.size()];
    }
  }
  return {resize_all(c, x, axes, o)};
}

Outputs upsample(Context& c) {
  const Term x = c.in(0);
  const auto scales = c.version < 9 ? std::optional(c.numbers("scales")) : constant_floats(c, 1);
  if (!scales || scales->empty()) c.unsupported("the scales of Upsample must be known at compile time");
  const Options o{.mode = c.text("mode", "nearest"), .coordinates = "asymmetric", .nearest = "floor"};
  return {resize_all(c, x, axes_from_scales(c, x, every_dim(x), *scales), o)};
}

constexpr Row kRows[] = {
    {"Resize", resize},
    {"Upsample", upsample},
};

}  // namespace

std::span<const Row> resize_rows() { return kRows; }

}  // namespace stridec::onnx
