#include "compiler/ops/resize_map.h"

#include <cmath>
#include <optional>

#include "compiler/base/check.h"

namespace stridec::ops::resizing {

std::vector<Axis> axes(const Node& node, const Shape& from, const std::vector<sym::Expr>& in_sizes) {
  const auto& dims = node.attributes.integers("dims");
  const auto sizes = node.attributes.exprs("sizes");
  std::vector<sym::Expr> roi_p, roi_q;
  if (node.attributes.find("roi_p")) {
    roi_p = node.attributes.exprs("roi_p");
    roi_q = node.attributes.exprs("roi_q");
  }
  STRIDEC_CHECK(sizes.size() == dims.size() && roi_p.size() == roi_q.size() &&
                (roi_p.empty() || roi_p.size() == 2 * dims.size()));
  std::vector<Axis> out;
  for (size_t i = 0; i < dims.size(); ++i) {
    Axis axis{.dim = static_cast<size_t>(dims[i]),
              .in = in_sizes.empty() ? from.at(static_cast<size_t>(dims[i])) : in_sizes.at(i),
              .out = sizes[i],
              .p = sizes[i],
              .q = 0};
    axis.q = axis.in;
    if (node.attributes.find("scale_p")) {
      axis.p = node.attributes.exprs("scale_p").at(i);
      axis.q = node.attributes.exprs("scale_q").at(i);
    }
    if (!roi_p.empty()) {
      axis.start_p = roi_p[i];
      axis.start_q = roi_q[i];
      axis.end_p = roi_p[dims.size() + i];
      axis.end_q = roi_q[dims.size() + i];
    }
    out.push_back(axis);
  }
  return out;
}

Coordinate coordinate(const std::string& mode, const Axis& a, sym::Expr o) {
  const sym::Expr half = (2 * o + 1) * a.q - a.p;  // (o + 0.5) / scale - 0.5, over 2 p
  const sym::Expr p2 = sym::max(2 * a.p, 1);
  if (mode == "half_pixel") return {half, p2};
  if (mode == "half_pixel_symmetric") return {a.p * a.in - a.out * a.q + half, p2};
  if (mode == "pytorch_half_pixel") return {sym::select(sym::gt(a.out, 1), half, 0), p2};
  if (mode == "asymmetric") return {o * a.q, sym::max(a.p, 1)};
  // With an explicit scale, the resized length is in * p / q, which need not be a whole number.
  if (mode == "align_corners") return {o * (a.in - 1) * a.q, sym::max(a.p * a.in - a.q, 1)};
  STRIDEC_CHECK(mode == "tf_crop_and_resize", mode);
  const sym::Expr s = a.start_p * a.end_q, e = a.end_p * a.start_q, d = a.start_q * a.end_q;
  const sym::Expr many = (a.in - 1) * (2 * s * (a.out - 1) + 2 * o * (e - s)), one = (a.in - 1) * (s + e);
  return {sym::select(sym::gt(a.out, 1), many, one),
          sym::select(sym::gt(a.out, 1), 2 * d * (a.out - 1), 2 * d)};
}

sym::Expr nearest_index(const std::string& rounding, const Coordinate& x) {
  if (rounding == "floor") return sym::floordiv(x.numerator, x.denominator);
  if (rounding == "ceil") return -sym::floordiv(-x.numerator, x.denominator);
  if (rounding == "round_prefer_ceil")
    return sym::floordiv(2 * x.numerator + x.denominator, 2 * x.denominator);
  STRIDEC_CHECK(rounding == "round_prefer_floor", rounding);
  return -sym::floordiv(x.denominator - 2 * x.numerator, 2 * x.denominator);
}

Coordinate nearest_coordinate(const std::string& rounding, const Coordinate& x) {
  const sym::Expr p = x.numerator, q = x.denominator;
  if (rounding == "floor") return x;
  if (rounding == "ceil") return {p + q - 1, q};
  if (rounding == "round_prefer_ceil") return {2 * p + q, 2 * q};
  return {2 * p + q - 1, 2 * q};
}

sym::Expr clamp(sym::Expr i, sym::Expr size) { return sym::max(sym::min(i, size - 1), 0); }

// The kernel at distance |d|: a triangle, or Keys' cubic with parameter a.
loop::Value Resampler::kernel(loop::Value d) {
  const loop::Value x = loop::unary(loop::ScalarOp::kAbs, d), zero = number(0.0), one = number(1.0);
  if (!cubic()) return loop::max(one - x, zero);
  const double a = node.attributes.number_or("cubic_a", -0.75);
  const loop::Value inner = ((number(a + 2) * x - number(a + 3)) * x) * x + one;
  const loop::Value outer = ((number(a) * x - number(5 * a)) * x + number(8 * a)) * x - number(4 * a);
  return loop::select(loop::le(x, one), inner, loop::select(loop::lt(x, number(2.0)), outer, zero));
}

loop::Value Resampler::weigh(loop::Value sample, loop::Value weight) {
  if (!node.attributes.integer_or("sparse", 0)) return sample * weight;
  return loop::select(loop::ne(weight, number(0.0)), sample * weight, number(0.0));
}

loop::Value Resampler::fraction(const Coordinate& x) {
  return number(sym::mod(x.numerator, x.denominator)) / number(x.denominator);
}

loop::Value Resampler::unless_outside(loop::Value weight, sym::Expr index, sym::Expr size) {
  if (!node.attributes.integer_or("exclude_outside", 0)) return weight;
  const sym::Expr inside = sym::logical_and(sym::ge(index, 0), sym::lt(index, size));
  return inside.is_const(1) ? weight : loop::select(n.index_value(inside, DType::kBool), weight, number(0.0));
}

Taps Resampler::taps(const Axis& axis, const Coordinate& x) {
  const sym::Expr base = sym::floordiv(x.numerator, x.denominator);
  const loop::Value t = fraction(x);
  Taps out;
  std::optional<loop::Value> sum;
  for (int k = cubic() ? -1 : 0; k <= (cubic() ? 2 : 1); ++k) {
    const loop::Value weight = unless_outside(kernel(number(static_cast<double>(k)) - t), base + k, axis.in);
    out.index.push_back(clamp(base + k, axis.in));
    out.weight.push_back(weight);
    sum = sum ? *sum + weight : weight;
  }
  if (node.attributes.integer_or("exclude_outside", 0))
    for (loop::Value& weight : out.weight) weight = weight / *sum;
  return out;
}

Stretched stretched(Resampler& r, const Axis& a, sym::Expr o) {
  const Coordinate c = coordinate(r.node.attributes.text("coordinate"), a, o);
  const sym::Expr p = sym::min(a.p, a.q), reach = r.cubic() ? 2 * a.q : a.q;
  const sym::Expr start = sym::floordiv(-reach, sym::max(p, 1)) + 1, count = 2 - 2 * start;
  const sym::Expr base = sym::floordiv(c.numerator, c.denominator) + start;
  const loop::Value t = r.fraction(c), scale = r.number(p) / r.number(a.q);
  return {.first = base, .start = start, .count = count, .fraction = t, .scale = scale};
}

loop::Value weight_of(Resampler& r, const Stretched& s, const Axis& axis, sym::Expr k) {
  const loop::Value distance = (r.n.index_value(s.start + k, r.dtype) - s.fraction) * s.scale;
  return r.unless_outside(r.kernel(distance), s.first + k, axis.in);
}

}  // namespace stridec::ops::resizing
