// Resize and Upsample: sizes and scales become the attributes of one resize node (ops/resize.cpp).
#include "compiler/ops/resize.h"

#include <algorithm>
#include <cmath>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"

namespace stridec::onnx {
namespace {

using namespace ops;

constexpr int64_t kMostScale = 1'000'000'000;  // beyond, sizes hardly fit in 64 bits

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
  std::vector<Scale> roi;  // starts, then ends
};

Scale fraction(double value) {
  const Rational r = nearest_rational(value);
  return {r.p, r.q};
}

// An input's numbers, which the run may tell; none where it is missing.
std::vector<Scale> fractions_of(const Context& c, size_t input, const std::string& what) {
  std::vector<Scale> out;
  if (!c.has(input)) return out;
  const Term x = c.in(input);
  if (!is_float(x.dtype())) c.does_not_fit(cat(what, " is ", name(x.dtype()), ", not a float"));
  if (const auto& data = c.b.graph()[x.id()].data) {
    const auto width = static_cast<size_t>(byte_size(x.dtype()));
    for (size_t at = 0; at + width <= data->size; at += width)
      out.push_back(fraction(read_float(x.dtype(), data->bytes + at)));
    return out;
  }
  const sym::Expr n = count(x.shape());
  if (n.is_const(0)) return out;
  if (!n.is_const())
    c.unsupported(cat("the length of ", what, " must be known at compile time, but that of ", c.b.display(x),
                      " depends on the inputs"));
  const Rationals r = nearest_rationals(reshape(x, {n}));
  const auto p = c.b.elements_of(r.p, what + ".p", -kLargestSize, kLargestSize),
             q = c.b.elements_of(r.q, what + ".q", 1, int64_t{1} << 24);
  for (size_t i = 0; i < p.size(); ++i) out.push_back({p[i], q[i]});
  return out;
}

std::vector<Axis> axes_from_scales(const Context& c, Term x, const Dims& dims,
                                   const std::vector<Scale>& scales) {
  if (scales.size() != dims.size()) c.does_not_fit(cat(scales.size(), " scales for ", dims.size(), " dims"));
  std::vector<Axis> out;
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto& [p, q] = scales[i];
    c.b.require(sym::logical_and(sym::ge(p, 1), sym::le(p, kMostScale * q)),
                cat("scale ", i, " is not a positive number, too small, or larger than sizes may become"));
    const sym::Expr size = x.dim(dims[i]);
    out.push_back(
        {.dim = dims[i], .in = size, .out = c.b.simplify(sym::floordiv(size * p, q)), .scale = Scale{p, q}});
  }
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

Term resized(const Context& c, Term x, std::vector<Axis> axes, Options o) {
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
  // Where the run tells the scales, most of them will be 1. Each dim by itself has few samples, and many taps add up
  // along one dim after the other instead of multiplying.
  const bool by_dim = o.mode != "nearest" && std::any_of(axes.begin(), axes.end(), [&](const Axis& a) {
                        return c.b.is_bound_in_run(a.scale ? a.scale->p : a.out);
                      });
  const bool many_taps = (o.mode == "cubic" || (o.antialias && o.mode == "linear")) &&
                         o.coordinates != "tf_crop_and_resize" && is_float(x.dtype());
  if ((by_dim || many_taps) && axes.size() > 1) {
    Term y = x.dtype() == DType::kF64 ? x : cast(x, DType::kF32);
    for (size_t i = 0; i < axes.size(); ++i) {
      Options one = o;
      if (!o.roi.empty()) one.roi = {o.roi[i], o.roi[axes.size() + i]};
      y = resized(c, y, {axes[i]}, one);
    }
    return cast(y, x.dtype());
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
                               {"extrapolation", o.extrapolation},
                               {"sparse", int64_t{by_dim}}};
  if (!o.roi.empty()) {
    Shape roi_p, roi_q;
    for (const Scale& edge : o.roi) {
      roi_p.push_back(edge.p);
      roi_q.push_back(edge.q);
    }
    attributes.set("roi_p", std::move(roi_p));
    attributes.set("roi_q", std::move(roi_q));
  }
  return {c.b, c.b.add1(OpKind::kResize, {x.id()}, std::move(attributes))};
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
  if (const auto scales = fractions_of(c, old ? 1 : 2, "scales"); !scales.empty()) {
    axes = axes_from_scales(c, x, dims, scales);
  } else if (!old && c.has(3)) {
    const auto sizes = c.sizes_of(3, "sizes", 1, kLargestSize);
    if (sizes.size() != dims.size()) c.does_not_fit(cat(sizes.size(), " sizes for ", dims.size(), " dims"));
    for (size_t i = 0; i < dims.size(); ++i)
      axes.push_back({.dim = dims[i], .in = x.dim(dims[i]), .out = sizes[i], .scale = {}});
    const std::string policy = c.text("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch") keep_aspect_ratio(c, axes, policy == "not_larger");
  } else {
    c.does_not_fit("Resize has neither scales nor sizes");
  }
  if (o.coordinates == "tf_crop_and_resize") {
    o.roi = fractions_of(c, 1, "roi");
    if (o.roi.size() != 2 * dims.size())
      c.does_not_fit(cat("roi has ", o.roi.size(), " numbers for ", dims.size(), " dims"));
  }
  return {resized(c, x, std::move(axes), std::move(o))};
}

Outputs upsample(Context& c) {
  const Term x = c.in(0);
  std::vector<Scale> scales;
  if (c.version < 9)
    for (double scale : c.numbers("scales")) scales.push_back(fraction(scale));
  else
    scales = fractions_of(c, 1, "scales");
  const std::string mode = c.text("mode", "nearest");
  return {resized(c, x, axes_from_scales(c, x, every_dim(x), scales),
                  {.mode = mode == "bilinear" ? "linear" : mode,
                   .coordinates = "asymmetric",
                   .nearest = "floor",
                   .roi = {}})};
}

constexpr Row kRows[] = {
    {"Resize", resize},
    {"Upsample", upsample},
};

}  // namespace

std::span<const Row> resize_rows() { return kRows; }

}  // namespace stridec::onnx
