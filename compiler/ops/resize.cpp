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
#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/resize_map.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

namespace {

using namespace resizing;

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
  std::vector<sym::Expr> extents;
  std::vector<loop::Value> sums;
  std::vector<Stretched> kernels;
  for (const Axis& a : axes) {
    kernels.push_back(stretched(r, a, at[a.dim]));
    sums.push_back(
        n.reduce(loop::Combine::kSum, {kernels.back().count},
                 [&](const std::vector<sym::Expr>& k) { return weight_of(r, kernels.back(), a, k[0]); }));
    extents.push_back(kernels.back().count);
  }
  const loop::Value total = n.reduce(loop::Combine::kSum, extents, [&](const std::vector<sym::Expr>& k) {
    std::vector<sym::Expr> source = at;
    std::optional<loop::Value> weight;
    for (size_t i = 0; i < axes.size(); ++i) {
      source[axes[i].dim] = clamp(kernels[i].first + k[i], axes[i].in);
      const loop::Value w = weight_of(r, kernels[i], axes[i], k[i]);
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
  const std::vector<Axis> axes = resizing::axes(node, x.shape);
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

// The transpose has resize's attributes and the sizes that it leads to.
Ids resize_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Shape& from = b.shape(node.inputs[0]);
  std::vector<sym::Expr> sizes;
  for (int64_t dim : node.attributes.integers("dims")) sizes.push_back(from[static_cast<size_t>(dim)]);
  graph::Attributes attributes = node.attributes;
  attributes.set("in_sizes", std::move(sizes));
  return {b.add1(OpKind::kResizeTranspose, {outputs[0]}, std::move(attributes))};
}

}  // namespace

const OpDef def_kResize{
    resize_shape, resize_lower,
    Gradient::by(resize_gradient,
                 "x: resize_transpose(g): each sample's weights times the results it is in")};

}  // namespace stridec::ops
