// Resize and Upsample.
#include "compiler/ops/composite/resize.h"

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Scale fraction(double value) {
  const Rational r = nearest_rational(value);
  return {r.p, r.q};
}

// The elements of an input as fractions, possibly known only at run time; empty if the input is missing.
std::vector<Scale> fractions_of(const Context& c, size_t input, const std::string& what) {
  std::vector<Scale> out;
  if (!c.has(input)) return out;
  const Term x = c.in(input);
  if (!is_float(x.dtype())) c.does_not_fit(cat(what, " is ", name(x.dtype()), ", not a float"));
  c.b.fix(x.id());
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

Outputs resize(Context& c) {
  const Term x = c.in(0);
  const bool old = c.version < 11;
  ResizeOptions o{.mode = c.text("mode", "nearest"),
                  .coordinates = old ? "asymmetric" : c.text("coordinate_transformation_mode", "half_pixel"),
                  .nearest = old ? "floor" : c.text("nearest_mode", "round_prefer_floor"),
                  .cubic_a = c.number("cubic_coeff_a", -0.75),
                  .extrapolation = c.number("extrapolation_value", 0),
                  .exclude_outside = c.integer("exclude_outside", 0) != 0,
                  .antialias = c.integer("antialias", 0) != 0,
                  .roi = {}};
  if (o.mode != "nearest" && o.mode != "linear" && o.mode != "cubic")
    c.unsupported("mode '" + o.mode + "' is unknown");
  const Dims dims = c.has_attribute("axes") ? c.axes(c.integers("axes"), x.rank()) : all_dims(x.rank());
  std::vector<ResizeAxis> axes;
  if (const auto scales = fractions_of(c, old ? 1 : 2, "scales"); !scales.empty()) {
    axes = axes_from_scales(x, dims, scales);
  } else if (!old && c.has(3)) {
    const auto sizes = c.sizes_of(3, "sizes", 1, kLargestSize);
    if (sizes.size() != dims.size()) c.does_not_fit(cat(sizes.size(), " sizes for ", dims.size(), " dims"));
    for (size_t i = 0; i < dims.size(); ++i)
      axes.push_back({.dim = dims[i], .in = x.dim(dims[i]), .out = sizes[i], .scale = {}});
    const std::string policy = c.text("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch") keep_aspect_ratio(c.b, axes, policy == "not_larger");
  } else {
    c.does_not_fit("Resize has neither scales nor sizes");
  }
  if (o.coordinates == "tf_crop_and_resize") {
    o.roi = fractions_of(c, 1, "roi");
    if (o.roi.size() != 2 * dims.size())
      c.does_not_fit(cat("roi has ", o.roi.size(), " numbers for ", dims.size(), " dims"));
  }
  return {ops::resize(x, std::move(axes), std::move(o))};
}

Outputs upsample(Context& c) {
  const Term x = c.in(0);
  std::vector<Scale> scales;
  if (c.version < 9)
    for (double scale : c.numbers("scales")) scales.push_back(fraction(scale));
  else
    scales = fractions_of(c, 1, "scales");
  const std::string mode = c.text("mode", "nearest");
  return {ops::resize(x, axes_from_scales(x, all_dims(x.rank()), scales),
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
