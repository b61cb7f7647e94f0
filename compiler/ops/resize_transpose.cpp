// The transpose of resize, for its gradient. Axes are independent, so each is one nest: every sample of the
// input gathers the results that it contributed to, a few in a row, times its weight in them.
#include "compiler/base/check.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/resize_map.h"
#include "compiler/ops/shapes.h"
#include "compiler/sym/guard.h"

namespace stridec::ops {

namespace {

using namespace resizing;

Inferred resize_transpose_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  Type type = b.type(node.inputs[0]);
  if (!is_float(type.dtype)) does_not_fit("resize_transpose takes floats");
  for (const Axis& axis : axes(node, {}, node.attributes.exprs("in_sizes"))) {
    expect_equal(b, type.shape[axis.dim], axis.out, "resize_transpose: a dim has {0} elements, not {1}");
    type.shape[axis.dim] = axis.in;
  }
  return {{type}, {}};
}

bool crops(const Node& node) { return node.attributes.text("coordinate") == "tf_crop_and_resize"; }
bool is_nearest(const Node& node) { return node.attributes.text("mode") == "nearest"; }

Coordinate coordinate_of(const Node& node, const Axis& axis, sym::Expr o) {
  return coordinate(node.attributes.text("coordinate"), axis, o);
}

Coordinate nearest_of(const Node& node, const Axis& axis, sym::Expr o) {
  return nearest_coordinate(node.attributes.text_or("nearest", "round_prefer_floor"),
                            coordinate_of(node, axis, o));
}

// Results first, first + 1, ... of an axis may contain sample i; at most `count`. Result o contains samples
// floor(x(o)) + low .. floor(x(o)) + high, clamped: the first and the last sample have all that is outside.
struct Reach {
  sym::Expr first, count;
};

Reach reach(Resampler& r, const Axis& a, sym::Expr i, const sym::Facts& facts) {
  const Node& node = r.node;
  if (crops(node)) return {0, a.out};  // the image may be mirrored
  sym::Expr low = 0, high = 0;
  if (!is_nearest(node)) low = r.cubic() ? -1 : 0, high = r.cubic() ? 2 : 1;
  if (node.attributes.integer_or("antialias", 0) && !is_nearest(node)) {
    const sym::Expr p = sym::min(a.p, a.q), wide = r.cubic() ? 2 * a.q : a.q;
    low = sym::floordiv(-wide, sym::max(p, 1)) + 1;
    high = 1 - low;
  }
  const auto x = [&](int64_t o) {
    return is_nearest(node) ? nearest_of(node, a, o) : coordinate_of(node, a, o);
  };
  const sym::Expr start = x(0).numerator, whole = x(0).denominator;
  const sym::Expr slope = sym::simplify(x(1).numerator - start, facts), step = sym::max(slope, 1);
  // The first result with x(o) >= floor.
  const auto from = [&](sym::Expr floor) {
    return sym::max(0, sym::min(sym::ceildiv(floor * whole - start, step), a.out));
  };
  const sym::Expr constant = sym::logical_or(sym::le(slope, 0), sym::eq(a.in, 1));
  const sym::Expr most = sym::max(sym::ceildiv((high - low + 1) * whole, step),
                                  sym::max(from(1 - low), a.out - from(a.in - 1 - high)));
  return {sym::simplify(sym::select(sym::logical_or(constant, sym::eq(i, 0)), 0, from(i - high)), facts),
          sym::simplify(sym::min(a.out, sym::select(constant, a.out, most)), facts)};
}

// Sums of the weights of each result of an antialiased axis.
loop::View weight_sums(Lowering& l, const Node& node, const Axis& axis, DType dtype) {
  const loop::View to = l.temporary({dtype, {axis.out}}, "resize_weights");
  loop::NestBuilder n = l.nest("resize_weights");
  const auto at = n.dims(to.shape);
  Resampler r{n, node, dtype};
  const Stretched s = stretched(r, axis, at[0]);
  n.store(to, at, n.reduce(loop::Combine::kSum, {s.count}, [&](const std::vector<sym::Expr>& k) {
    return weight_of(r, s, axis, k[0]);
  }));
  n.finish(&l.steps());
  return to;
}

void transpose_axis(Lowering& l, const Node& node, const Axis& a, loop::View g, const loop::View& to,
                    DType dtype) {
  const bool antialias = node.attributes.integer_or("antialias", 0) && !is_nearest(node);
  const std::optional<loop::View> sums =
      antialias ? std::optional(weight_sums(l, node, a, dtype)) : std::nullopt;
  if (!g.mask.is_const(1)) g = l.materialise(g, "resize_gradient");
  loop::NestBuilder n = l.nest("resize_transpose");
  const auto at = n.dims(to.shape);
  Resampler r{n, node, dtype};
  const sym::Expr i = at[a.dim];
  const Reach around = reach(r, a, i, n.facts());
  const loop::Value zero = r.number(0.0);
  // Sums over results, and for antialiasing over the samples of each: several may be clamped to one.
  std::vector<sym::Expr> extents{around.count};
  if (antialias) {
    const sym::Expr p = sym::min(a.p, a.q), wide = r.cubic() ? 2 * a.q : a.q;
    extents.push_back(2 - 2 * (sym::floordiv(-wide, sym::max(p, 1)) + 1));
  }
  const loop::Value sum = n.reduce(loop::Combine::kSum, extents, [&](const std::vector<sym::Expr>& k) {
    const sym::Expr o = around.first + k[0], inside = sym::lt(o, a.out), place = sym::min(o, a.out - 1);
    const Coordinate x = coordinate_of(node, a, place);
    std::vector<sym::Expr> from = at;
    from[a.dim] = o;
    loop::Access element = loop::access(g, from);
    element.mask = inside;
    if (crops(node))
      element.mask = sym::logical_and(
          element.mask,
          sym::logical_and(sym::ge(x.numerator, 0), sym::le(x.numerator, (a.in - 1) * x.denominator)));
    const auto hits = [&](sym::Expr index) { return sym::eq(clamp(index, a.in), i); };
    if (is_nearest(node)) {
      const Coordinate c = nearest_of(node, a, place);
      element.mask = sym::logical_and(element.mask, hits(sym::floordiv(c.numerator, c.denominator)));
      return n.cast(n.load(element, loop::int_scalar(g.dtype, 0)), dtype);
    }
    const loop::Value value = n.cast(n.load(element, loop::int_scalar(g.dtype, 0)), dtype);
    const auto weight_at = [&](sym::Expr hit, loop::Value weight) {
      return loop::select(n.index_value(hit, DType::kBool), weight, zero);
    };
    if (antialias) {
      const Stretched s = stretched(r, a, place);
      const loop::Value weight = weight_at(hits(s.first + k[1]), weight_of(r, s, a, k[1]));
      return r.weigh(value, weight / n.load(*sums, {place}));
    }
    const Taps taps = r.taps(a, x);
    loop::Value weight = weight_at(sym::eq(taps.index[0], i), taps.weight[0]);
    for (size_t t = 1; t < taps.index.size(); ++t)
      weight = weight + weight_at(sym::eq(taps.index[t], i), taps.weight[t]);
    return r.weigh(value, weight);
  });
  n.store(to, at, n.cast(sum, to.dtype));
  n.finish(&l.steps());
}

void resize_transpose_lower(Lowering& l, const Node& node) {
  loop::View g = l.view(node.inputs[0]);
  const DType narrow = g.dtype, dtype = narrow == DType::kF64 ? DType::kF64 : DType::kF32;
  const std::vector<Axis> all = axes(node, {}, node.attributes.exprs("in_sizes"));
  if (all.empty()) return l.alias(node.outputs[0], g);
  Shape shape = g.shape;
  for (size_t j = 0; j < all.size(); ++j) {
    shape[all[j].dim] = all[j].in;
    const loop::View to =
        j + 1 == all.size() ? l.define(node.outputs[0]) : l.temporary({dtype, shape}, "resize_part");
    transpose_axis(l, node, all[j], g, to, dtype);
    g = to;
  }
}

Ids resize_transpose_gradient(Builder& b, const Node& node, const Ids& outputs) {
  graph::Attributes attributes;
  for (const auto& [name, value] : node.attributes.items())
    if (name != "in_sizes" && name != "extrapolation") attributes.set(name, value);
  return {b.add1(OpKind::kResize, {outputs[0]}, std::move(attributes))};
}

}  // namespace

const OpDef def_kResizeTranspose{resize_transpose_shape, resize_transpose_lower,
                                 Gradient::by(resize_transpose_gradient, "g: resize of its gradient")};

}  // namespace stridec::ops
