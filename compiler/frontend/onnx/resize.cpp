// Resize and Upsample: sizes and scales become the attributes of one resize node (ops/resize.cpp).
#include "compiler/ops/resize.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"

namespace stridec::onnx {
namespace {

// p / q
struct Scale {
  sym::Expr p, q;
};

// A resized dim; where the node gives sizes alone, its scale is new size / old size.
struct Axis {
  int64_t dim = 0;
  sym::Expr in = 1, out = 1;
  std::optional<Scale> scale;
};

struct Options {
  std::string mode = "nearest", coordinates = "half_pixel", nearest = "round_prefer_floor";
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
  std::vector<double> roi;  // starts, then ends
};

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

Axis scaled(const Context& c, Term x, int64_t dim, double scale) {
  constexpr double kMost = 1e9;  // beyond, sizes hardly fit in 64 bits
  if (!(scale > 0 && scale <= kMost)) c.does_not_fit(cat("a scale of ", scale));
  const ops::Rational r = ops::nearest_rational(scale);
  return {.dim = dim,
          .in = x.dim(dim),
          .out = c.b.simplify(sym::floordiv(x.dim(dim) * r.p, r.q)),
          .scale = Scale{r.p, r.q}};
}

std::vector<Axis> axes_from_scales(const Context& c, Term x, const Dims& dims,
                                   const std::vector<double>& scales) {
  if (scales.size() != dims.size()) c.does_not_fit(cat(scales.size(), " scales for ", dims.size(), " dims"));
  std::vector<Axis> out;
  for (size_t i = 0; i < dims.size(); ++i) out.push_back(scaled(c, x, dims[i], scales[i]));
  return out;
}

// The sizes are bounds: one scale for all dims, the smallest or the largest that they allow.
void keep_aspect_ratio(const Context& c, std::vector<Axis>& axes, bool not_larger) {
  std::optional<Scale> best;
  for (const Axis& a : axes) {
    const Scale scale{a.out, a.in};
    if (!best) {
      best = scale;
      continue;
    }
    const sym::Expr smaller = sym::lt(scale.p * best->q, best->p * scale.q);
    const auto pick = [&](sym::Expr x, sym::Expr y) {
      return c.b.simplify(not_larger ? sym::select(smaller, x, y) : sym::select(smaller, y, x));
    };
    best = Scale{pick(scale.p, best->p), pick(scale.q, best->q)};
  }
  for (Axis& a : axes) {
    a.scale = best;
    a.out = c.b.simplify(sym::floordiv(2 * a.in * best->p + best->q, 2 * best->q));  // rounded
  }
}

Outputs make(const Context& c, Term x, std::vector<Axis> axes, Options o) {
  if (o.coordinates == "tf_half_pixel_for_nn") {  // floor((i + 0.5) / scale)
    if (o.mode != "nearest" || o.nearest != "floor")
      c.unsupported("tf_half_pixel_for_nn is supported with nearest_mode floor alone");
    o.coordinates = "half_pixel";
    o.nearest = "round_prefer_ceil";
  }
  if (o.coordinates != "tf_crop_and_resize")
    std::erase_if(axes,
                  [](const Axis& a) { return a.in == a.out && (!a.scale || a.scale->p == a.scale->q); });
  if (axes.empty()) return {x};
  // Many taps: along one dim after the other they add up instead of multiplying.
  const bool many_taps = o.mode == "cubic" || (o.antialias && o.mode == "linear");
  if (many_taps && axes.size() > 1 && o.coordinates != "tf_crop_and_resize" && is_float(x.dtype())) {
    Term y = widen(x);
    for (const Axis& a : axes) y = Term(c.b, make(c, y, {a}, o).at(0).tensor);
    return {cast(y, x.dtype())};
  }
  Dims dims;
  Shape sizes, p, q;
  for (const Axis& a : axes) {
    dims.push_back(a.dim);
    sizes.push_back(a.out);
    p.push_back(a.scale ? a.scale->p : a.out);
    q.push_back(a.scale ? a.scale->q : a.in);
  }
  graph::Attributes attributes{{"dims", dims},
                               {"sizes", sizes},
                               {"scale_p", p},
                               {"scale_q", q},
                               {"mode", o.mode},
                               {"coordinate", o.coordinates},
                               {"nearest", o.nearest},
                               {"cubic_a", o.cubic_a},
                               {"exclude_outside", int64_t{o.exclude_outside}},
                               {"antialias", int64_t{o.antialias}},
                               {"extrapolation", o.extrapolation}};
  if (!o.roi.empty()) attributes.set("roi", o.roi);
  return {Term(c.b, c.b.add1(OpKind::kResize, {x.id()}, std::move(attributes)))};
}

Dims every_dim(Term x) {
  Dims out;
  for (int64_t d = 0; d < x.rank(); ++d) out.push_back(d);
  return out;
}

Outputs resize(Context& c) {
  const Term x = c.in(0);
  const bool old = c.version < 11;
  Options o{.mode = c.text("mode", "nearest"),
            .coordinates = old ? "asymmetric" : c.text("coordinate_transformation_mode", "half_pixel"),
            .nearest = old ? "floor" : c.text("nearest_mode", "round_prefer_floor"),
            .cubic_a = c.number("cubic_coeff_a", -0.75),
            .extrapolation = c.number("extrapolation_value", 0),
            .exclude_outside = c.integer("exclude_outside", 0) != 0,
            .antialias = c.integer("antialias", 0) != 0,
            .roi = {}};
  if (o.mode != "nearest" && o.mode != "linear" && o.mode != "cubic")
    c.unsupported("mode '" + o.mode + "' is unknown");
  const Dims dims = c.has_attribute("axes") ? c.axes(c.integers("axes"), x.rank()) : every_dim(x);
  std::vector<Axis> axes;
  if (const auto scales = constant_floats(c, old ? 1 : 2); scales && !scales->empty()) {
    axes = axes_from_scales(c, x, dims, *scales);
  } else if (!old && c.has(3)) {
    const auto sizes = c.sizes_of(3, "sizes", 1, int64_t{1} << 40);
    if (sizes.size() != dims.size()) c.does_not_fit(cat(sizes.size(), " sizes for ", dims.size(), " dims"));
    for (size_t i = 0; i < dims.size(); ++i)
      axes.push_back({.dim = dims[i], .in = x.dim(dims[i]), .out = sizes[i], .scale = {}});
    const std::string policy = c.text("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch") keep_aspect_ratio(c, axes, policy == "not_larger");
  } else {
    c.unsupported("the scales of Resize must be known at compile time");
  }
  if (o.coordinates == "tf_crop_and_resize") {
    const auto roi = constant_floats(c, 1);
    if (!roi || roi->size() != 2 * dims.size())
      c.unsupported("the region of tf_crop_and_resize must be known at compile time");
    o.roi = *roi;
  }
  return make(c, x, std::move(axes), std::move(o));
}

Outputs upsample(Context& c) {
  const Term x = c.in(0);
  const auto scales = c.version < 9 ? std::optional(c.numbers("scales")) : constant_floats(c, 1);
  if (!scales || scales->empty()) c.unsupported("the scales of Upsample must be known at compile time");
  const std::string mode = c.text("mode", "nearest");
  return make(c, x, axes_from_scales(c, x, every_dim(x), *scales),
              {.mode = mode == "bilinear" ? "linear" : mode,
               .coordinates = "asymmetric",
               .nearest = "floor",
               .roi = {}});
}

constexpr Row kRows[] = {
    {"Resize", resize},
    {"Upsample", upsample},
};

}  // namespace

std::span<const Row> resize_rows() { return kRows; }

}  // namespace stridec::onnx
