// The resize op: ONNX Resize-19 over any dims. Attributes:
//   dims, sizes       the resized dims and their new sizes (expressions)
//   scale_p, scale_q  expressions, scale = p/q per resized dim; absent: new size / old size
//   mode              nearest | linear | cubic
//   coordinate        half_pixel | half_pixel_symmetric | pytorch_half_pixel | align_corners | asymmetric
//                     | tf_crop_and_resize
//   nearest           round_prefer_floor | round_prefer_ceil | floor | ceil
//   cubic_a           parameter of Keys' kernel; default -0.75
//   exclude_outside   1: samples outside have weight 0
//   antialias         1: stretch the kernel when downsampling
//   roi_p, roi_q      expressions: starts, then ends, p/q of the resized dims (tf_crop_and_resize)
//   extrapolation     the result outside the roi
//   sparse            1: ignore samples of weight 0, even NaN and infinity, so that scale 1 is the identity
//
// Every source coordinate is a rational number x = numerator / denominator over index expressions. floor(x)
// is therefore exact index arithmetic for any size; only the weights are floats.
#include <cmath>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

struct Axis {
  size_t dim;
  sym::Expr in, out, p, q;  // scale = p / q
  sym::Expr start_p = 0, start_q = 1, end_p = 1, end_q = 1;
};

std::vector<Axis> axes(const Node& node, const Shape& from) {
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
              .in = from.at(static_cast<size_t>(dims[i])),
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

Inferred resize_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  Shape shape = b.shape(node.inputs[0]);
  const DType dtype = b.dtype(node.inputs[0]);
  if (is_bool(dtype) && node.attributes.text("mode") != "nearest")
    does_not_fit("resize: bools are not interpolated");
  normal_dims(node.attributes.integers("dims"), b.rank(node.inputs[0]), "resize");
  for (int64_t dim : node.attributes.integers("dims")) STRIDEC_CHECK(dim >= 0);
  for (const Axis& axis : axes(node, shape)) {
    b.require(sym::ge(axis.out, 0), "resize: size {0} is negative", {axis.out});
    b.require(sym::logical_or(sym::ge(axis.in, 1), sym::eq(axis.out, 0)),
              cat("resize: dim ", axis.dim, " of size {0} has nothing to sample"), {axis.in});
    if (!axis.p.is_const() || !axis.q.is_const()) {
    } else if (axis.p.value() <= 0 || axis.q.value() <= 0) {
      does_not_fit("resize: a scale is not positive");
    }
    shape[axis.dim] = axis.out;
  }
  return {{{dtype, std::move(shape)}}, {}};
}

// x = numerator / denominator, denominator > 0.
struct Coordinate {
  sym::Expr numerator, denominator;
};

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

sym::Expr clamp(sym::Expr i, sym::Expr size) { return sym::max(sym::min(i, size - 1), 0); }

// The input samples of one axis that contribute to an output: their indices and weights.
struct Taps {
  std::vector<sym::Expr> index;
  std::vector<loop::Value> weight;
};

struct Resampler {
  loop::NestBuilder& n;
  const Node& node;
  DType dtype;  // of weights and sums

  loop::Value number(double value) { return n.constant(dtype, value); }
  loop::Value number(sym::Expr e) {
    return e.is_const() ? number(static_cast<double>(e.value())) : n.index_value(e, dtype);
  }

  bool cubic() const { return node.attributes.text("mode") == "cubic"; }

  // The kernel at distance |d|: a triangle, or Keys' cubic with parameter a.
  loop::Value kernel(loop::Value d) {
    const loop::Value x = loop::unary(loop::ScalarOp::kAbs, d), zero = number(0.0), one = number(1.0);
    if (!cubic()) return loop::max(one - x, zero);
    const double a = node.attributes.number_or("cubic_a", -0.75);
    const loop::Value inner = ((number(a + 2) * x - number(a + 3)) * x) * x + one;
    const loop::Value outer = ((number(a) * x - number(5 * a)) * x + number(8 * a)) * x - number(4 * a);
    return loop::select(loop::le(x, one), inner, loop::select(loop::lt(x, number(2.0)), outer, zero));
  }

  loop::Value weigh(loop::Value sample, loop::Value weight) {
    if (!node.attributes.integer_or("sparse", 0)) return sample * weight;
    return loop::select(loop::ne(weight, number(0.0)), sample * weight, number(0.0));
  }

  loop::Value fraction(const Coordinate& x) {
    return number(sym::mod(x.numerator, x.denominator)) / number(x.denominator);
  }

  loop::Value unless_outside(loop::Value weight, sym::Expr index, sym::Expr size) {
    if (!node.attributes.integer_or("exclude_outside", 0)) return weight;
    const sym::Expr inside = sym::logical_and(sym::ge(index, 0), sym::lt(index, size));
    return inside.is_const(1) ? weight
                              : loop::select(n.index_value(inside, DType::kBool), weight, number(0.0));
  }

  Taps taps(const Axis& axis, const Coordinate& x) {
    const sym::Expr base = sym::floordiv(x.numerator, x.denominator);
    const loop::Value t = fraction(x);
    Taps out;
    std::optional<loop::Value> sum;
    for (int k = cubic() ? -1 : 0; k <= (cubic() ? 2 : 1); ++k) {
      const loop::Value weight =
          unless_outside(kernel(number(static_cast<double>(k)) - t), base + k, axis.in);
      out.index.push_back(clamp(base + k, axis.in));
      out.weight.push_back(weight);
      sum = sum ? *sum + weight : weight;
    }
    if (node.attributes.integer_or("exclude_outside", 0))
      for (loop::Value& weight : out.weight) weight = weight / *sum;
    return out;
  }
};

void sample_nearest(Lowering& l, const Node& node, const loop::View& x, const loop::View& to,
                    const std::vector<Axis>& axes) {
  loop::NestBuilder n = l.nest("resize_nearest");
  const auto at = n.dims(to.shape);
  std::vector<sym::Expr> source = at;
  const std::string coordinates = node.attributes.text("coordinate"),
                    rounding = node.attributes.text_or("nearest", "round_prefer_floor");
  for (const Axis& a : axes)
    source[a.dim] = clamp(nearest_index(rounding, coordinate(coordinates, a, at[a.dim])), a.in);
  n.store(to, at, n.load(x, source));
  n.finish(&l.steps());
}

// Downsampling: the kernel is stretched by 1 / scale and its weights are normalised.
loop::Value antialiased(Resampler& r, const loop::View& x, const std::vector<Axis>& axes,
                        const std::vector<sym::Expr>& at) {
  loop::NestBuilder& n = r.n;
  std::vector<sym::Expr> extents, first;
  std::vector<loop::Value> sums;
  std::vector<std::function<loop::Value(sym::Expr)>> weights;
  for (const Axis& a : axes) {
    const Coordinate c = coordinate(r.node.attributes.text("coordinate"), a, at[a.dim]);
    const sym::Expr p = sym::min(a.p, a.q), reach = r.cubic() ? 2 * a.q : a.q;
    const sym::Expr start = sym::floordiv(-reach, sym::max(p, 1)) + 1, count = 2 - 2 * start;
    const sym::Expr base = sym::floordiv(c.numerator, c.denominator) + start;
    const loop::Value t = r.fraction(c), scale = r.number(p) / r.number(a.q);
    weights.push_back([&r, &n, t, scale, start, base, a](sym::Expr k) {
      const loop::Value distance = (n.index_value(start + k, r.dtype) - t) * scale;
      return r.unless_outside(r.kernel(distance), base + k, a.in);
    });
    sums.push_back(n.reduce(loop::Combine::kSum, {count},
                            [&](const std::vector<sym::Expr>& k) { return weights.back()(k[0]); }));
    extents.push_back(count);
    first.push_back(base);
  }
  const loop::Value total = n.reduce(loop::Combine::kSum, extents, [&](const std::vector<sym::Expr>& k) {
    std::vector<sym::Expr> source = at;
    std::optional<loop::Value> weight;
    for (size_t i = 0; i < axes.size(); ++i) {
      source[axes[i].dim] = clamp(first[i] + k[i], axes[i].in);
      const loop::Value w = weights[i](k[i]);
      weight = weight ? *weight * w : w;
    }
    const loop::Value sample = n.cast(n.load(x, source), r.dtype);
    return weight ? r.weigh(sample, *weight) : sample;
  });
  loop::Value result = total;
  for (loop::Value sum : sums) result = result / sum;
  return result;
}

loop::Value weighted(Resampler& r, const loop::View& x, const std::vector<Axis>& axes,
                     const std::vector<Taps>& taps, size_t i, std::vector<sym::Expr>& source) {
  if (i == axes.size()) return r.n.cast(r.n.load(x, source), r.dtype);
  std::optional<loop::Value> sum;
  for (size_t k = 0; k < taps[i].index.size(); ++k) {
    source[axes[i].dim] = taps[i].index[k];
    const loop::Value term = r.weigh(weighted(r, x, axes, taps, i + 1, source), taps[i].weight[k]);
    sum = sum ? *sum + term : term;
  }
  return *sum;
}

void resize_lower(Lowering& l, const Node& node) {
  const loop::View x = l.view(node.inputs[0]), to = l.define(node.outputs[0]);
  const std::vector<Axis> axes = ops::axes(node, x.shape);
  const std::string coordinates = node.attributes.text("coordinate");
  const bool crops = coordinates == "tf_crop_and_resize";
  if (node.attributes.text("mode") == "nearest" && !crops) return sample_nearest(l, node, x, to, axes);

  loop::NestBuilder n = l.nest("resize_" + node.attributes.text("mode"));
  const auto at = n.dims(to.shape);
  Resampler r{n, node, x.dtype == DType::kF64 ? DType::kF64 : DType::kF32};
  std::vector<sym::Expr> source = at;
  loop::Value result;
  if (node.attributes.text("mode") == "nearest") {
    for (const Axis& a : axes)
      source[a.dim] = clamp(nearest_index(node.attributes.text_or("nearest", "round_prefer_floor"),
                                          coordinate(coordinates, a, at[a.dim])),
                            a.in);
    result = n.cast(n.load(x, source), r.dtype);
  } else if (node.attributes.integer_or("antialias", 0)) {
    result = antialiased(r, x, axes, at);
  } else {
    std::vector<Taps> taps;
    for (const Axis& a : axes) taps.push_back(r.taps(a, coordinate(coordinates, a, at[a.dim])));
    result = weighted(r, x, axes, taps, 0, source);
  }
  if (crops) {
    sym::Expr inside = 1;
    for (const Axis& a : axes) {
      const Coordinate c = coordinate(coordinates, a, at[a.dim]);
      inside = sym::logical_and(inside, sym::logical_and(sym::ge(c.numerator, 0),
                                                         sym::le(c.numerator, (a.in - 1) * c.denominator)));
    }
    result = loop::select(n.index_value(inside, DType::kBool), result,
                          r.number(node.attributes.number_or("extrapolation", 0)));
  }
  n.store(to, at, n.cast(result, to.dtype, is_integer(to.dtype)));
  n.finish(&l.steps());
}

}  // namespace

const OpDef def_kResize{resize_shape, resize_lower};

}  // namespace stridec::ops
