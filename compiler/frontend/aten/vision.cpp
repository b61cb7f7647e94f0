// Sampling images at positions.
#include "compiler/base/text.h"
#include "compiler/frontend/aten/call.h"

namespace stridec::aten {
namespace {

using namespace ops;

// Coordinates in [-1, 1] as positions in a dim of n pixels.
Term position(Term g, sym::Expr n, bool corners) {
  const Term size = cast(size_as(g.builder(), DType::kI64, n), g.dtype(), false);
  if (corners) return (g + 1.0) * 0.5 * (size - 1.0);
  return ((g + 1.0) * size - 1.0) * 0.5;
}

// The pixel at whole positions (x, y) of shape [batch, h, w]; zero outside of the image if asked.
Term pixel(Term image, Term x, Term y) {
  Builder& b = image.builder();
  const sym::Expr h = image.dim(2), w = image.dim(3);
  const auto last = [&](sym::Expr n) { return cast(size_as(b, DType::kI64, n - 1), x.dtype(), false); };
  const Term inside = logical_and(logical_and(greater_equal(x, 0), less_equal(x, last(w))),
                                  logical_and(greater_equal(y, 0), less_equal(y, last(h))));
  // NaN is outside.
  const Term cx = cast(select(inside, x, 0), DType::kI64, false),
             cy = cast(select(inside, y, 0), DType::kI64, false);
  const Term at = cy * size_as(b, DType::kI64, w) + cx;  // [batch, h', w']
  const Term flat = permute(reshape(image, {image.dim(0), image.dim(1), h * w}), {0, 2, 1});
  const Term rows = permute(gather(flat, at, 1, 1), {0, 3, 1, 2});  // [batch, channels, h', w']
  return select(unsqueeze(inside, {1}), rows, 0);
}

Results grid_sampler(Context& c) {
  const Term image = c.in("input"), grid = c.in("grid");
  if (image.rank() != 4) c.unsupported("grid_sampler of other images than [batch, channels, height, width]");
  const int64_t mode = c.integer("interpolation_mode"), padding = c.integer("padding_mode");
  if (mode > 1) c.unsupported("bicubic grid_sampler");
  if (padding > 1) c.unsupported("grid_sampler with reflection");
  const bool corners = c.flag("align_corners");
  const Term wide = widen(image), g = cast(grid, wide.dtype(), false);
  const auto coordinate = [&](int64_t which, sym::Expr n) {
    const Term p = position(squeeze(slice(g, 3, which, 1), {3}), n, corners);
    if (padding == 0) return p;
    return minimum(maximum(p, 0), cast(size_as(c.b, DType::kI64, n - 1), p.dtype(), false));
  };
  const Term x = coordinate(0, image.dim(3)), y = coordinate(1, image.dim(2));
  if (mode == 1)
    return {cast(pixel(wide, apply(OpKind::kRound, x), apply(OpKind::kRound, y)), image.dtype(), false)};
  const Term x0 = apply(OpKind::kFloor, x), y0 = apply(OpKind::kFloor, y);
  const auto corner = [&](double dx, double dy) {
    const Term wx = dx == 0 ? subtract_from(1, x - x0) : x - x0,
               wy = dy == 0 ? subtract_from(1, y - y0) : y - y0;
    return pixel(wide, x0 + dx, y0 + dy) * unsqueeze(wx * wy, {1});
  };
  return {cast(corner(0, 0) + corner(1, 0) + corner(0, 1) + corner(1, 1), image.dtype(), false)};
}

constexpr Row kRows[] = {
    {"grid_sampler", grid_sampler},
    {"grid_sampler_2d", grid_sampler},
};

}  // namespace

std::span<const Row> vision_rows() { return kRows; }

}  // namespace stridec::aten
