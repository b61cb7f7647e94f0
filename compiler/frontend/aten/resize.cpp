// Resizing images.
#include "compiler/ops/composite/resize.h"

#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"

namespace stridec::aten {
namespace {

using namespace ops;

// The axes of a resize of the last n dims. The caller gives either the new sizes or factors. Factors
// determine the sizes and are also the scales of the coordinates.
std::vector<ResizeAxis> axes_of(Context& c, Term x, size_t n) {
  if (x.shape().size() != n + 2) c.does_not_fit(cat("resizing ", n, " dims of a tensor of rank ", x.rank()));
  std::vector<std::optional<double>> factors(n);
  if (c.names("scale_factors") && c.has("scale_factors")) {
    const auto& items = c.arg("scale_factors").items;
    if (items.size() != n) c.does_not_fit("scale_factors has a wrong length");
    for (size_t i = 0; i < n; ++i) {
      if (items[i].kind == Value::Kind::kFloat)
        factors[i] = items[i].number;
      else if (items[i].kind == Value::Kind::kInt && items[i].integer.is_const())
        factors[i] = static_cast<double>(items[i].integer.value());
      else
        c.unsupported("scale factors must be known at compile time");
    }
  }
  const char* names[3] = {"scales_d", "scales_h", "scales_w"};
  for (size_t i = 0; i < n; ++i) {
    const char* name = n == 1 && c.names("scales") ? "scales" : names[3 - n + i];
    if (c.names(name)) factors[i] = c.optional_number(name);
  }
  const char* size_name = c.names("output_size") ? "output_size" : "size";
  std::vector<ResizeAxis> out;
  const bool sized = c.has(size_name);
  const Shape sizes = sized ? c.sizes(size_name) : Shape();
  if (sized && sizes.size() != n) c.does_not_fit("output_size has a wrong length");
  for (size_t i = 0; i < n; ++i) {
    const int64_t dim = static_cast<int64_t>(i) + 2;
    ResizeAxis axis{.dim = dim, .in = x.dim(dim), .out = 1, .scale = {}};
    if (factors[i]) {
      const Rational r = nearest_rational(*factors[i]);
      axis.scale = Scale{r.p, r.q};
      axis.out = c.b.simplify(sym::floordiv(x.dim(dim) * r.p, r.q));
    } else if (!sized) {
      c.does_not_fit("neither a size nor a scale factor");
    }
    if (sized) axis.out = sizes[i];
    out.push_back(axis);
  }
  return out;
}

Results resized(Context& c, size_t n, ResizeOptions options) {
  const Term x = c.in(c.names("input") ? "input" : "self");
  std::vector<ResizeAxis> axes = axes_of(c, x, n);
  if (options.coordinates == "align_corners")
    for (ResizeAxis& axis : axes) axis.scale.reset();
  // In PyTorch's antialiased filters, align_corners changes the scale to (out - 1) / (in - 1), but the
  // coordinates are still those of pixel centres.
  if (options.antialias && options.coordinates == "align_corners") {
    options.coordinates = "half_pixel";
    for (ResizeAxis& axis : axes) {
      const sym::Expr in = c.b.simplify(axis.in), out = c.b.simplify(axis.out);
      if (!in.is_const() || !out.is_const() || in.value() < 2 || out.value() < 2)
        c.unsupported("antialiased resizing with align_corners of a size that is open, or 1");
      axis.scale = Scale{out.value() - 1, in.value() - 1};
    }
  }
  return {ops::resize(x, std::move(axes), std::move(options))};
}

template <size_t n, bool exact>
Results nearest(Context& c) {
  if (exact)
    return resized(
        c, n, {.mode = "nearest", .coordinates = "half_pixel", .nearest = "round_prefer_ceil", .roi = {}});
  return resized(c, n, {.mode = "nearest", .coordinates = "asymmetric", .nearest = "floor", .roi = {}});
}
template <size_t n, bool antialias>
Results linear(Context& c) {
  const bool corners = c.flag("align_corners");
  return resized(c, n,
                 {.mode = "linear",
                  .coordinates = corners ? "align_corners" : "half_pixel",
                  .exclude_outside = antialias,
                  .antialias = antialias,
                  .roi = {}});
}
template <bool antialias>
Results cubic(Context& c) {
  const bool corners = c.flag("align_corners");
  // PyTorch's antialiased filter has Pillow's coefficient (-0.5), and the other one has OpenCV's (-0.75).
  return resized(c, 2,
                 {.mode = "cubic",
                  .coordinates = corners ? "align_corners" : "half_pixel",
                  .cubic_a = antialias ? -0.5 : -0.75,
                  .exclude_outside = antialias,
                  .antialias = antialias,
                  .roi = {}});
}

constexpr Row kRows[] = {
    {"_upsample_bicubic2d_aa", cubic<true>},         {"_upsample_bilinear2d_aa", linear<2, true>},
    {"_upsample_nearest_exact1d", nearest<1, true>}, {"_upsample_nearest_exact2d", nearest<2, true>},
    {"_upsample_nearest_exact3d", nearest<3, true>}, {"upsample_bicubic2d", cubic<false>},
    {"upsample_bilinear2d", linear<2, false>},       {"upsample_linear1d", linear<1, false>},
    {"upsample_nearest1d", nearest<1, false>},       {"upsample_nearest2d", nearest<2, false>},
    {"upsample_nearest3d", nearest<3, false>},       {"upsample_trilinear3d", linear<3, false>},
};

}  // namespace

std::span<const Row> resize_rows() { return kRows; }

}  // namespace stridec::aten
