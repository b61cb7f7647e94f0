// Pooling: reductions over windows of the trailing (spatial) dims. Positions outside the input are masked to
// the reduction's identity. `extra` pads the end without counting as padding (ceil mode).
#include <limits>

#include "compiler/base/check.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/ops/gradient.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/lowering.h"
#include "compiler/ops/nodes.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/pooling_windows.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

PoolingWindows pooling_windows(const Node& node) {
  PoolingWindows w{.window = node.attributes.exprs("window"),
                   .strides = node.attributes.integers("strides"),
                   .dilations = node.attributes.integers("dilations"),
                   .before = node.attributes.exprs("before"),
                   .after = node.attributes.exprs("after"),
                   .extra = {}};
  w.extra = node.attributes.find("extra") ? node.attributes.exprs("extra")
                                          : std::vector<sym::Expr>(w.window.size(), 0);
  for (const auto& [name, size] : {std::pair("strides", w.strides.size()),
                                   {"dilations", w.dilations.size()},
                                   {"before", w.before.size()},
                                   {"after", w.after.size()},
                                   {"extra", w.extra.size()}})
    if (size != w.spatial())
      does_not_fit(cat(graph::name(node.kind), ": window has ", w.spatial(), " dims, ", name, " ", size));
  for (size_t i = 0; i < w.spatial(); ++i)
    if (w.strides[i] < 1 || w.dilations[i] < 1)
      does_not_fit(cat(graph::name(node.kind), ": strides and dilations are at least 1"));
  return w;
}

namespace {

using loop::Combine;
using Windows = PoolingWindows;

Shape pooled(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const Windows w = pooling_windows(node);
  Shape shape = b.shape(node.inputs[0]);
  if (shape.size() < w.spatial())
    does_not_fit(cat(graph::name(node.kind), ": a window of ", w.spatial(), " dims over ", to_string(shape)));
  for (size_t i = 0; i < w.spatial(); ++i) {
    sym::Expr& dim = shape[shape.size() - w.spatial() + i];
    const sym::Expr padded = dim + w.before[i] + w.after[i] + w.extra[i];
    const sym::Expr reach = (w.window[i] - 1) * w.dilations[i] + 1;
    b.require(sym::ge(padded, reach),
              cat(graph::name(node.kind), ": padded spatial dim ", i,
                  " of size {0} is smaller than the window {1}"),
              {padded, reach});
    dim = sym::floordiv(padded - reach, w.strides[i]) + 1;
  }
  return shape;
}

Combine combine_of(const Node& node) {
  const std::string& kind = node.attributes.text("kind");
  if (kind == "sum") return Combine::kSum;
  if (kind == "prod") return Combine::kProd;
  if (kind == "max") return Combine::kMax;
  STRIDEC_CHECK(kind == "min", kind);
  return Combine::kMin;
}

// The input, with positions outside reading as `fill`.
loop::View padded(Lowering& l, const loop::View& x, const Windows& w, loop::Scalar fill) {
  const size_t lead = x.shape.size() - w.spatial();
  std::vector<sym::Expr> before(lead, 0), after(lead, 0);
  for (size_t i = 0; i < w.spatial(); ++i) {
    before.push_back(w.before[i]);
    after.push_back(w.after[i] + w.extra[i]);
  }
  if (auto view = loop::pad(x, before, after, fill)) return *view;
  return *loop::pad(l.materialise(x, "pool_input"), before, after, fill);
}

// The position of window element `k` of output `at` in the padded input.
std::vector<sym::Expr> source(const Windows& w, std::vector<sym::Expr> at, const std::vector<sym::Expr>& k) {
  const size_t lead = at.size() - w.spatial();
  for (size_t i = 0; i < w.spatial(); ++i) at[lead + i] = at[lead + i] * w.strides[i] + k[i] * w.dilations[i];
  return at;
}

Inferred reduce_window_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  combine_of(node);
  const DType dtype = b.dtype(node.inputs[0]);
  if (is_bool(dtype)) does_not_fit("reduce_window does not take bools");
  return {{{dtype, pooled(b, node)}}, {}};
}

// The pooling stages to run in order. Max and min pooling are separable: the extremum over a box is the
// extremum of those of its rows, which takes k loads per dim instead of their product. A stage runs on more
// elements the larger the strides of the dims not yet reduced are. On a tie, stages are used if the last dim
// is strided: only the last stage then has strided loads.
std::vector<Windows> stages(const Windows& w, Combine combine) {
  if (combine != Combine::kMax && combine != Combine::kMin) return {w};
  int64_t together = 1, apart = 0, elements = 1, wide = 0;
  for (size_t d = w.spatial(); d-- > 0;) {
    const auto k = sym::as_const(w.window[d]);
    if (!k || *k > 1000) return {w};
    wide += *k > 1;
    together *= *k;
    apart += *k * elements;
    elements *= w.strides[d];
    if (together > 1'000'000 || elements > 1'000'000) return {w};
  }
  if (wide < 2 || apart > together || (apart == together && w.strides.back() == 1)) return {w};
  std::vector<Windows> out;
  for (size_t d = 0; d < w.spatial(); ++d) {
    const std::vector<int64_t> one(w.spatial(), 1);
    const std::vector<sym::Expr> none(w.spatial(), 0);
    Windows stage{.window = {one.begin(), one.end()},
                  .strides = one,
                  .dilations = one,
                  .before = none,
                  .after = none,
                  .extra = none};
    stage.window[d] = w.window[d], stage.strides[d] = w.strides[d], stage.dilations[d] = w.dilations[d];
    stage.before[d] = w.before[d], stage.after[d] = w.after[d], stage.extra[d] = w.extra[d];
    out.push_back(std::move(stage));
  }
  return out;
}

void reduce_window_lower(Lowering& l, const Node& node) {
  const Combine combine = combine_of(node);
  const DType dtype = l.type(node.inputs[0]).dtype, wide = compute_dtype(dtype);
  const Shape& result = l.type(node.outputs[0]).shape;
  const std::vector<Windows> all = stages(pooling_windows(node), combine);
  const size_t lead = result.size() - all[0].spatial();
  loop::View x = l.view(node.inputs[0]);
  Shape shape = x.shape;
  for (size_t i = 0; i < all.size(); ++i) {
    const Windows& w = all[i];
    const bool last = i + 1 == all.size();
    shape[lead + i] = result[lead + i];
    const loop::View from = padded(l, x, w, loop::identity(combine, dtype));
    const loop::View to = last ? l.define(node.outputs[0]) : l.temporary({dtype, shape}, "pool_part");
    loop::NestBuilder n = l.nest("pool_" + node.attributes.text("kind"));
    const auto at = n.dims(to.shape);
    std::vector<size_t> dims;  // dims in which the window is larger than 1
    std::vector<sym::Expr> extents;
    for (size_t d = 0; d < w.spatial(); ++d)
      if (all.size() == 1 || d == i) dims.push_back(d), extents.push_back(w.window[d]);
    const loop::Value value = n.reduce(combine, extents, [&](const std::vector<sym::Expr>& k) {
      std::vector<sym::Expr> tap(w.spatial(), 0);
      for (size_t d = 0; d < dims.size(); ++d) tap[dims[d]] = k[d];
      return n.cast(n.load(from, source(w, at, tap)), wide);
    });
    n.store(to, at, n.cast(value, dtype));
    n.finish(&l.steps());
    x = to;
  }
}

// ---- argmax of a window ----------------------------------------------------------------------------------

// Of type `dtype`, if that is set: i32 takes the place of i64 where it holds every index.
Inferred window_argmax_shape(Builder& b, const Node& node) {
  const DType dtype = node.attributes.find("dtype") ? node.attributes.dtype("dtype") : DType::kI64;
  return {{{dtype, pooled(b, node)}}, {}};
}

void window_argmax_lower(Lowering& l, const Node& node) {
  const Windows w = pooling_windows(node);
  const Type& type = l.type(node.inputs[0]);
  const size_t lead = type.shape.size() - w.spatial();
  const DType wide = compute_dtype(type.dtype);
  const loop::View x = padded(l, l.view(node.inputs[0]), w, loop::identity(Combine::kMax, type.dtype)),
                   to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("pool_argmax");
  const auto at = n.dims(to.shape);
  const auto value_at = [&](const std::vector<sym::Expr>& k) {
    return n.cast(n.load(x, source(w, at, k)), wide);
  };
  // The largest value, then the first position that holds it: an argmax that carries both costs three times
  // the instructions.
  const loop::Value largest = n.reduce(Combine::kMax, w.window, value_at);
  const loop::Value first = n.reduce(Combine::kMin, w.window, [&](const std::vector<sym::Expr>& k) {
    const std::vector<sym::Expr> where = source(w, at, k);
    sym::Expr flat = 0, inside = 1;
    for (size_t i = 0; i < w.spatial(); ++i) {
      const sym::Expr size = type.shape[lead + i], position = where[lead + i] - w.before[i];
      flat = flat * size + position;
      inside = sym::logical_and(inside, sym::logical_and(sym::ge(position, 0), sym::lt(position, size)));
    }
    // A position outside never wins over a position inside, even if that one holds the lowest value.
    const int64_t none = static_cast<int64_t>(integer_range(to.dtype).hi);
    const loop::Value value = value_at(k);
    loop::Value holds = loop::eq(value, largest);
    if (is_float(wide))
      holds = loop::binary(loop::ScalarOp::kOr, holds, loop::unary(loop::ScalarOp::kIsNan, value));
    return loop::select(holds, n.index_value(sym::select(inside, flat, none), to.dtype),
                        n.index_value(none, to.dtype));
  });
  n.store(to, at, first);
  n.finish(&l.steps());
}

// ---- average ---------------------------------------------------------------------------------------------

Inferred average_pool_shape(Builder& b, const Node& node) {
  expect_inputs(node, 1, 1);
  const DType dtype = b.dtype(node.inputs[0]);
  if (!is_float(dtype)) does_not_fit(cat("average_pool takes floats, not ", name(dtype)));
  return {{{dtype, pooled(b, node)}}, {}};
}

// Number of k in [0, window) with low <= start + k * dilation < high.
sym::Expr count_inside(sym::Expr start, sym::Expr window, int64_t dilation, sym::Expr low, sym::Expr high) {
  const sym::Expr first = sym::max(sym::ceildiv(low - start, dilation), 0);
  const sym::Expr last = sym::min(sym::ceildiv(high - start, dilation), window);
  return last - first;
}

void average_pool_lower(Lowering& l, const Node& node) {
  const Windows w = pooling_windows(node);
  const Type& type = l.type(node.inputs[0]);
  const size_t lead = type.shape.size() - w.spatial();
  const DType wide = compute_dtype(type.dtype);
  const bool include_pad = node.attributes.integer_or("count_include_pad", 0) != 0;
  const loop::View x = padded(l, l.view(node.inputs[0]), w, loop::float_scalar(type.dtype, 0)),
                   to = l.define(node.outputs[0]);
  loop::NestBuilder n = l.nest("pool_average");
  const auto at = n.dims(to.shape);
  const loop::Value sum = n.reduce(Combine::kSum, w.window, [&](const std::vector<sym::Expr>& k) {
    return n.cast(n.load(x, source(w, at, k)), wide);
  });
  sym::Expr count = 1;
  for (size_t i = 0; i < w.spatial(); ++i) {
    const sym::Expr size = type.shape[lead + i];
    const sym::Expr low = include_pad ? sym::Expr(0) : w.before[i];
    const sym::Expr high = include_pad ? size + w.before[i] + w.after[i] : size + w.before[i];
    const bool whole =
        w.extra[i].is_const(0) && (include_pad || (w.before[i].is_const(0) && w.after[i].is_const(0)));
    count *= whole ? w.window[i]
                   : count_inside(at[lead + i] * w.strides[i], w.window[i], w.dilations[i], low, high);
  }
  const loop::Value divisor = count.is_const() ? n.constant(wide, static_cast<double>(count.value()))
                                               : n.index_value(sym::max(count, 1), wide);
  n.store(to, at, n.cast(sum / divisor, type.dtype));
  n.finish(&l.steps());
}

// ---- gradients -------------------------------------------------------------------------------------------

// The most elements of a window whose product is differentiated element by element.
constexpr int64_t kMostFactors = 4096;

// The same as a product over a new last dim: element k of it is element k of every window.
Term product_of_elements(Term x, const Node& node, const Windows& w) {
  const Builder& b = x.builder();
  const size_t lead = static_cast<size_t>(x.rank()) - w.spatial();
  int64_t elements = 1;
  for (sym::Expr size : w.window) {
    const auto known = sym::as_const(size);
    if (!known || (elements *= *known) > kMostFactors)
      no_gradient(node, "its kind is prod, and its windows are large or known to the run alone");
  }
  Shape before(lead, 0), after(lead, 0);
  for (size_t d = 0; d < w.spatial(); ++d) {
    before.push_back(w.before[d]);
    after.push_back(w.after[d] + w.extra[d]);
  }
  const Term whole = pad(x, before, after, 1);
  std::vector<Term> factors;
  for (int64_t k = 0; k < elements; ++k) {
    Term factor = whole;
    int64_t rest = k;
    for (size_t d = w.spatial(); d-- > 0;) {
      const int64_t size = w.window[d].value(), dim = static_cast<int64_t>(lead + d);
      factor =
          slice(factor, dim, rest % size * w.dilations[d], b.shape(node.outputs[0])[lead + d], w.strides[d]);
      rest /= size;
    }
    factors.push_back(unsqueeze(factor, {x.rank()}));
  }
  return reduce(OpKind::kReduceProd, concat(factors, x.rank()), {x.rank()});
}

Ids reduce_window_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Windows w = pooling_windows(node);
  const Term g(b, outputs[0]), x(b, node.inputs[0]);
  const Combine combine = combine_of(node);
  if (combine == Combine::kSum) return {window_spread(g, std::nullopt, x.shape(), w)};
  if (combine == Combine::kProd) return gradient_through(b, node, product_of_elements(x, node, w), g);
  graph::Attributes attributes = node.attributes;
  // The places stay in memory until the backward pass.
  const int64_t first = x.rank() - static_cast<int64_t>(w.spatial());
  const auto range = b.facts().bounds(count(x.shape(), first, x.rank()));
  if (range.has_hi() && range.hi < std::numeric_limits<int32_t>::max()) attributes.set("dtype", DType::kI32);
  const Term places(b, b.add1(OpKind::kWindowArgMax, {combine == Combine::kMin ? (-x).id() : x.id()},
                              std::move(attributes)));
  return {window_spread(g, places, x.shape(), w)};
}

// The gradient of each position is g / divisor; 1 / divisor is the average of ones over their number.
Ids average_pool_gradient(Builder& b, const Node& node, const Ids& outputs) {
  const Windows w = pooling_windows(node);
  const Term g(b, outputs[0]);
  const Shape& shape = b.shape(node.inputs[0]);
  const Term ones = filled(b, shape, g.dtype(), 1);
  graph::Attributes sum = node.attributes;
  sum.set("kind", std::string("sum"));
  const Term inside(b, b.add1(OpKind::kReduceWindow, {ones}, std::move(sum))),
      share(b, b.add1(OpKind::kAveragePool, {ones}, node.attributes));
  return {window_spread(g * share / maximum(inside, 1), std::nullopt, shape, w)};
}

}  // namespace

const OpDef def_kReduceWindow{
    reduce_window_shape, reduce_window_lower,
    Gradient::by(
        reduce_window_gradient,
        "x: sum: window_spread(g); max, min: window_spread(g, window_argmax(x)); prod: as reduce_prod",
        "the first of equal extrema gets g; prod: windows of constant size")};
const OpDef def_kWindowArgMax{window_argmax_shape, window_argmax_lower,
                              Gradient::flat("indices are integers")};
const OpDef def_kAveragePool{average_pool_shape, average_pool_lower,
                             Gradient::by(average_pool_gradient, "x: window_spread(g / count)")};

}  // namespace stridec::ops
