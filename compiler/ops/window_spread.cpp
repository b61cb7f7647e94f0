// The transpose of pooling: each position sums the gradients of the windows that reach it, or of those that
// chose it as their extremum. Gathering keeps it parallel and the order of the sums fixed.
#include "compiler/base/check.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/pooling_windows.h"

namespace stridec::ops {

namespace {

Inferred window_spread_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 2);
  Type type = b.type(node.inputs[0]);
  const auto sizes = node.attributes.exprs("sizes");
  STRIDEC_CHECK(pooling_windows(node).spatial() == sizes.size() && sizes.size() <= type.shape.size());
  if (is_bool(type.dtype)) does_not_fit("window_spread does not take bools");
  if (node.inputs.size() > 1) {
    const Type& places = b.type(node.inputs[1]);
    if ((places.dtype != DType::kI64 && places.dtype != DType::kI32) ||
        places.shape.size() != type.shape.size())
      does_not_fit("window_spread: places are i64 or i32, one for each window");
    for (size_t d = 0; d < type.shape.size(); ++d)
      expect_equal(b, type.shape[d], places.shape[d], "window_spread: {0} windows, {1} places");
  }
  std::copy(sizes.begin(), sizes.end(), type.shape.end() - static_cast<std::ptrdiff_t>(sizes.size()));
  for (sym::Expr size : sizes) b.require(sym::ge(size, 0), "window_spread: size {0} is negative", {size});
  return {{type}, {}};
}

// A view that can be read under another mask.
loop::View unmasked(Lowering& l, const loop::View& view, const char* name) {
  return view.mask.is_const(1) ? view : l.materialise(view, name);
}

// Windows o with o * stride <= position + before <= o * stride + (window - 1) * dilation reach a position: a
// few in a row, from the first one on.
void window_spread_lower(Lowering& l, const Node& node) {
  const PoolingWindows w = pooling_windows(node);
  const bool chosen = node.inputs.size() > 1;
  const loop::View g = unmasked(l, l.view(node.inputs[0]), "pool_gradient");
  const loop::View places = chosen ? unmasked(l, l.view(node.inputs[1]), "pool_places") : loop::View{};
  const loop::View to = l.define(node.outputs[0]);
  const DType wide = compute_dtype(g.dtype);
  const size_t lead = to.shape.size() - w.spatial();
  loop::NestBuilder n = l.nest("pool_spread");
  const auto at = n.dims(to.shape);
  std::vector<sym::Expr> extents;
  sym::Expr flat = 0;
  for (size_t d = 0; d < w.spatial(); ++d) {
    const sym::Expr reach = (w.window[d] - 1) * w.dilations[d] + 1;
    extents.push_back(sym::min(sym::ceildiv(reach, w.strides[d]), g.shape[lead + d]));
    flat = flat * to.shape[lead + d] + at[lead + d];
  }
  const loop::Value sum = n.reduce(loop::Combine::kSum, extents, [&](const std::vector<sym::Expr>& k) {
    std::vector<sym::Expr> from = at;
    sym::Expr inside = 1;
    for (size_t d = 0; d < w.spatial(); ++d) {
      const sym::Expr position = at[lead + d] + w.before[d];
      const sym::Expr first =
          sym::max(sym::ceildiv(position - (w.window[d] - 1) * w.dilations[d], w.strides[d]), 0);
      const sym::Expr o = first + k[d], rest = position - o * w.strides[d];
      inside = sym::logical_and(inside, sym::logical_and(sym::lt(o, g.shape[lead + d]), sym::ge(rest, 0)));
      if (w.dilations[d] != 1) inside = sym::logical_and(inside, sym::eq(sym::mod(rest, w.dilations[d]), 0));
      from[lead + d] = o;
    }
    loop::Access element = loop::access(g, from);
    element.mask = inside;
    const loop::Value value = n.cast(n.load(element, loop::int_scalar(g.dtype, 0)), wide);
    if (!chosen) return value;
    loop::Access place = loop::access(places, from);
    place.mask = inside;
    const loop::Value chosen_place = n.load(place, loop::int_scalar(places.dtype, -1));
    const loop::Value hit = loop::eq(chosen_place, n.cast(n.index_value(flat), places.dtype));
    return loop::select(hit, value, n.constant(wide, 0));
  });
  n.store(to, at, n.cast(sum, to.dtype));
  n.finish(&l.steps());
}

// Merges the spatial dims: [lead..., places].
Term flat_places(Term x, size_t spatial) {
  const int64_t lead = x.rank() - static_cast<int64_t>(spatial);
  Shape shape(x.shape().begin(), x.shape().begin() + lead);
  shape.push_back(count(x.shape(), lead, x.rank()));
  return reshape(x, shape);
}

Ids window_spread_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Term u(b, outputs[0]);
  const Shape& windows = b.shape(node.inputs[0]);
  if (node.inputs.size() == 1) {
    graph::Attributes attributes;
    for (const auto& [name, value] : node.attributes.items())
      if (name != "sizes") attributes.set(name, value);
    attributes.set("kind", std::string("sum"));
    return {b.add1(OpKind::kReduceWindow, {u}, std::move(attributes))};
  }
  // A window outside of the input has no position. Its index is one past the end, where the padding
  // holds a zero.
  const size_t spatial = pooling_windows(node).spatial();
  const Term flat = flat_places(u, spatial),
             places = flat_places(cast({b, node.inputs[1]}, DType::kI64), spatial);
  const int64_t last = flat.rank() - 1;
  Shape none(static_cast<size_t>(flat.rank()), 0), one = none;
  one.back() = 1;
  const Term at = minimum(places, size_as(b, DType::kI64, flat.dim(last)));
  return {reshape(gather_elements(pad(flat, none, one, 0), at, last), windows), {}};
}

}  // namespace

const OpDef def_kWindowSpread{
    window_spread_shape, window_spread_lower,
    Gradient::by(window_spread_gradient,
                 "g: reduce_window(sum) of its gradient; with places, that at the places")};

Term window_spread(Term g, std::optional<Term> places, const Shape& to, const PoolingWindows& w) {
  std::vector<ValueId> inputs{g.id()};
  if (places) inputs.push_back(places->id());
  const Shape sizes(to.end() - static_cast<std::ptrdiff_t>(w.spatial()), to.end());
  return {g.builder(), g.builder().add1(OpKind::kWindowSpread, std::move(inputs),
                                        {{"window", w.window},
                                         {"strides", w.strides},
                                         {"dilations", w.dilations},
                                         {"before", w.before},
                                         {"after", w.after},
                                         {"extra", w.extra},
                                         {"sizes", sizes}})};
}

}  // namespace stridec::ops
