// Convolution and pooling.
#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/frontend/onnx/window.h"
#include "compiler/ops/composite/activations.h"

namespace stridec::onnx {

using namespace ops;

Window read_window(const Context& c, Term x, const Shape& size) {
  const size_t n = size.size();
  if (x.shape().size() != n + 2)
    c.does_not_fit(cat("a window over ", n, " dims does not fit an input of rank ", x.rank()));
  Window w{.size = size,
           .strides = c.integers("strides", Dims(n, 1)),
           .dilations = c.integers("dilations", Dims(n, 1)),
           .before = {},
           .after = {},
           .extra = Shape(n, 0)};
  if (w.strides.size() != n || w.dilations.size() != n)
    c.does_not_fit("strides or dilations do not fit the window's rank");
  for (size_t i = 0; i < n; ++i)
    if (w.strides[i] < 1 || w.dilations[i] < 1) c.does_not_fit("strides and dilations must be positive");
  const std::string mode = c.text("auto_pad", "NOTSET");
  const Dims pads = c.integers("pads", Dims(2 * n, 0));
  if (pads.size() != 2 * n) c.does_not_fit(cat("pads has ", pads.size(), " values for ", n, " dims"));
  for (size_t i = 0; i < n; ++i) {
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      // The output size is input / stride, rounded up. Odd padding goes to the end, or to the front for
      // SAME_LOWER.
      const sym::Expr in = x.shape()[i + 2], out = sym::ceildiv(in, w.strides[i]);
      const sym::Expr total = c.b.simplify(sym::max((out - 1) * w.strides[i] + w.reach(i) - in, 0));
      const sym::Expr half = c.b.simplify(sym::floordiv(total, 2));
      w.before.push_back(mode == "SAME_UPPER" ? half : c.b.simplify(total - half));
      w.after.push_back(mode == "SAME_UPPER" ? c.b.simplify(total - half) : half);
    } else if (mode == "VALID") {
      w.before.push_back(0);
      w.after.push_back(0);
    } else {
      w.before.push_back(pads[i]);
      w.after.push_back(pads[i + n]);
    }
  }
  for (size_t i = 0; i < n && c.integer("ceil_mode", 0); ++i) {
    // A window must not start in the end padding.
    const sym::Expr in = x.shape()[i + 2], padded = in + w.before[i] + w.after[i];
    sym::Expr out = sym::ceildiv(padded - w.reach(i), w.strides[i]) + 1;
    out = sym::select(sym::ge((out - 1) * w.strides[i], in + w.before[i]), out - 1, out);
    w.extra[i] = c.b.simplify((out - 1) * w.strides[i] + w.reach(i) - padded);
  }
  return w;
}

Term channels_second(Term x) {
  Dims order{0, x.rank() - 1};
  for (int64_t d = 1; d < x.rank() - 1; ++d) order.push_back(d);
  return permute(x, order);
}

Term channels_last(Term x) {
  Dims order{0};
  for (int64_t d = 2; d < x.rank(); ++d) order.push_back(d);
  order.push_back(1);
  return permute(x, order);
}

graph::Attributes window_attributes(const Window& w) {
  return {{"window", w.size},   {"strides", w.strides}, {"dilations", w.dilations},
          {"before", w.before}, {"after", w.after},     {"extra", w.extra}};
}

namespace {

Dims spatial_dims(Term x) {
  Dims out(static_cast<size_t>(std::max<int64_t>(x.rank() - 2, 0)));
  std::iota(out.begin(), out.end(), 2);
  return out;
}

Shape kernel_shape(const Context& c) {
  const Dims k = c.integers("kernel_shape");
  if (k.empty()) c.does_not_fit("kernel_shape is missing");
  return {k.begin(), k.end()};
}

// y [n, channels, spatial...] plus input 2, a bias [channels], if present.
Term biased(const Context& c, Term y) {
  if (!c.has(2)) return y;
  Shape shape(y.shape().size() - 1, 1);
  shape[0] = c.in(2).dim(0);
  c.b.require(sym::eq(shape[0], y.dim(1)), "a bias of {0} numbers for {1} channels", {shape[0], y.dim(1)});
  return y + reshape(c.in(2), shape);
}

Outputs conv(Context& c) {
  const Term x = c.in(0), w = c.in(1);
  if (w.rank() < 3) c.does_not_fit(cat("the weights have rank ", w.rank(), ", at least 3 is needed"));
  const Window window = read_window(c, x, Shape(w.shape().begin() + 2, w.shape().end()));
  const Term y(c.b, c.b.add1(OpKind::kConv, {x.id(), w.id()},
                             {{"strides", window.strides},
                              {"dilations", window.dilations},
                              {"before", window.before},
                              {"after", window.after},
                              {"groups", c.integer("group", 1)}}));
  return {biased(c, y)};
}

// Causal depthwise convolution: x [batch, channels, length], preceded by the state, the k - 1 positions
// before it (zero if not given); taps w [channels, 1, k]. Not expanded by ONNX's function body, which needs
// constant sizes. com.microsoft's variant also has a dilation and channels-last data.
Outputs causal_conv_with_state(Context& c) {
  if (c.integer("ndim", 1) != 1) c.unsupported("CausalConvWithState over several spatial dims");
  if (c.integer("state_window", 0) != 0)
    c.unsupported("CausalConvWithState with the states of several steps");
  const bool last = c.integer("channels_last", 0) != 0;
  const auto laid = [&](Term t) { return last ? transpose(t, 1, 2) : t; };
  for (size_t i : {0, 1, 3})
    if (c.has(i) && c.in(i).rank() != 3) c.does_not_fit("input, weight and state have three dims");
  const Term x = laid(c.in(0)), w = c.in(1);
  const int64_t dilation = c.integer("dilation", 1);
  if (dilation < 1) c.does_not_fit(cat("dilation is ", dilation));
  const sym::Expr length = x.dim(2), taps = w.dim(2), kept = c.b.simplify((taps - 1) * dilation);
  c.b.require(sym::eq(w.dim(0), x.dim(1)), "weights of {0} channels for {1} channels", {w.dim(0), x.dim(1)});
  c.b.require(sym::eq(w.dim(1), 1), "each channel has its own taps, but the weight's second dim is {0}",
              {w.dim(1)});
  c.b.require(sym::ge(taps, 1), "a weight of {0} taps", {taps});
  const Term past = c.has(3) ? laid(c.in(3)) : filled(c.b, {x.dim(0), x.dim(1), kept}, x.dtype(), 0);
  c.b.require(sym::eq(past.dim(2), kept), "a state of {0} positions for {1} taps", {past.dim(2), taps});
  const Term all = concat({past, x}, 2);
  const auto convolved = [&]() -> Term {
    if (const auto groups = sym::as_const(x.dim(1)))
      return {c.b, c.b.add1(OpKind::kConv, {all.id(), w.id()},
                            {{"strides", Dims{1}},
                             {"dilations", Dims{dilation}},
                             {"before", Shape{0}},
                             {"after", Shape{0}},
                             {"groups", *groups}})};
    const Shape grid{length, taps};
    const Term at = index_along(c.b, grid, 0, DType::kI64) +
                    index_along(c.b, grid, 1, DType::kI64) * static_cast<double>(dilation);
    return cast(reduce_sum(widen(gather(all, at, 2)) * widen(w), {3}), x.dtype());
  };
  Term y = convolved();
  y = biased(c, y);
  const std::string activation = c.text("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = silu(y);
  else if (activation != "none")
    c.does_not_fit("activation is '" + activation + "'");
  return {laid(y), laid(slice(all, 2, length, kept))};
}

Outputs conv_transpose(Context& c) {
  const Term x = c.in(0), w = c.in(1);
  if (w.rank() < 3 || x.rank() != w.rank())
    c.does_not_fit(cat("weights of rank ", w.rank(), " do not fit an input of rank ", x.rank()));
  const size_t n = w.shape().size() - 2;
  const Dims strides = c.integers("strides", Dims(n, 1)), dilations = c.integers("dilations", Dims(n, 1));
  Dims extra = c.integers("output_padding", Dims(n, 0));
  const Dims pads = c.integers("pads", Dims(2 * n, 0)), wanted = c.integers("output_shape");
  const std::string mode = c.text("auto_pad", "NOTSET");
  if (strides.size() != n || dilations.size() != n || extra.size() != n || pads.size() != 2 * n)
    c.does_not_fit("strides, dilations, pads or output_padding do not fit the weights' rank");
  Shape before, after, more;
  for (size_t i = 0; i < n; ++i) {
    const sym::Expr in = x.shape()[i + 2];
    const sym::Expr full = (in - 1) * strides[i] + (w.shape()[i + 2] - 1) * dilations[i] + 1 + extra[i];
    more.push_back(extra[i]);
    std::optional<sym::Expr> size;
    if (!wanted.empty())
      size = wanted.at(wanted.size() == n ? i : i + 2);
    else if (mode.starts_with("SAME"))
      size = in * strides[i];
    if (!size) {
      before.push_back(mode == "VALID" ? 0 : pads[i]);
      after.push_back(mode == "VALID" ? 0 : pads[i + n]);
      continue;
    }
    const sym::Expr total = c.b.simplify(full - *size), half = c.b.simplify(sym::floordiv(total, 2));
    sym::Expr front = mode == "SAME_UPPER" ? half : c.b.simplify(total - half);
    sym::Expr back = c.b.simplify(total - front);
    // If the requested output is larger than the windows cover, it is extended at the end.
    more.back() = c.b.simplify(more.back() + sym::max(-back, 0));
    before.push_back(front);
    after.push_back(c.b.simplify(sym::max(back, 0)));
  }
  const Term y(c.b, c.b.add1(OpKind::kConvTranspose, {x.id(), w.id()},
                             {{"strides", strides},
                              {"dilations", dilations},
                              {"before", before},
                              {"after", after},
                              {"output_extra", more},
                              {"groups", c.integer("group", 1)}}));
  return {biased(c, y)};
}

Outputs max_pool(Context& c) {
  const Term x = c.in(0);
  const Window window = read_window(c, x, kernel_shape(c));
  graph::Attributes attributes = window_attributes(window);
  Outputs out;
  if (c.wants(1)) {
    // Flat positions in the input, including batch and channels. storage_order 1 counts spatial dims in
    // column-major order.
    const Shape spatial(x.shape().begin() + 2, x.shape().end());
    const sym::Expr plane = count(spatial);
    Term at(c.b, c.b.add1(OpKind::kWindowArgMax, {x.id()}, attributes));
    if (c.integer("storage_order", 0)) {
      Term rest = at, swapped = number_like(at, 0);
      sym::Expr weight = plane;
      for (size_t i = spatial.size(); i-- > 0;) {
        weight = c.b.simplify(sym::floordiv(weight, spatial[i]));
        const Term extent = size_as(c.b, DType::kI64, spatial[i]);
        swapped = swapped + apply(OpKind::kMod, rest, extent) *
                                size_as(c.b, DType::kI64, count(spatial, 0, static_cast<int64_t>(i)));
        rest = rest / extent;
      }
      at = swapped;
    }
    Shape lead(x.shape().size(), 1);
    lead[0] = x.dim(0);
    lead[1] = x.dim(1);
    const Term image = index_along(c.b, lead, 0, DType::kI64) * size_as(c.b, DType::kI64, x.dim(1)) +
                       index_along(c.b, lead, 1, DType::kI64);
    out.push_back(at + image * size_as(c.b, DType::kI64, plane));
  }
  attributes.set("kind", std::string("max"));
  out.insert(out.begin(), Term(c.b, c.b.add1(OpKind::kReduceWindow, {x.id()}, std::move(attributes))));
  return out;
}

Term window_sum(const Context& c, Term x, const Window& window) {
  graph::Attributes attributes = window_attributes(window);
  attributes.set("kind", std::string("sum"));
  return {c.b, c.b.add1(OpKind::kReduceWindow, {x.id()}, std::move(attributes))};
}

Outputs average_pool(Context& c) {
  const Term x = c.in(0);
  graph::Attributes attributes = window_attributes(read_window(c, x, kernel_shape(c)));
  attributes.set("count_include_pad", c.integer("count_include_pad", 0));
  return {Term(c.b, c.b.add1(OpKind::kAveragePool, {x.id()}, std::move(attributes)))};
}

Term power_root(const Context& c, Term x, const std::function<Term(Term)>& sum) {
  const double p = c.node.find("p") && !c.node.find("p")->floats.empty()
                       ? c.number("p", 2)
                       : static_cast<double>(c.integer("p", 2));
  const Term w = abs(widen(x));
  if (p == 1) return cast(sum(w), x.dtype());
  if (p == 2) return cast(sqrt(sum(square(w))), x.dtype());
  return cast(pow(sum(pow(w, p)), 1 / p), x.dtype());
}

Outputs lp_pool(Context& c) {
  const Window window = read_window(c, c.in(0), kernel_shape(c));
  return {power_root(c, c.in(0), [&](Term t) { return window_sum(c, t, window); })};
}
Outputs global_lp_pool(Context& c) {
  const Term x = c.in(0);
  return {power_root(c, x, [&](Term t) { return reduce_sum(t, spatial_dims(x), kKeep); })};
}
Outputs global_average_pool(Context& c) {
  const Term x = c.in(0);
  return {cast(reduce_mean(widen(x), spatial_dims(x), kKeep), x.dtype())};
}
Outputs global_max_pool(Context& c) { return {reduce_max(c.in(0), spatial_dims(c.in(0)), kKeep)}; }

// Whether the integers are computed from a MaxPool's indices by integer operators only.
bool from_max_pool(const graph::Graph& graph, ValueId value) {
  std::vector<ValueId> open{value};
  std::unordered_set<ValueId> seen;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (!id.valid() || !is_integer(graph[id].type.dtype) || !seen.insert(id).second) continue;
    if (!graph[id].producer.valid()) continue;
    const graph::Node& node = graph[graph[id].producer];
    if (node.kind == OpKind::kWindowArgMax) return true;
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  return false;
}

// Converts flat indices into a tensor of shape `from` to flat indices of the same positions in shape `to`.
Term moved_index(Term at, const Shape& from, const Shape& to) {
  Builder& b = at.builder();
  size_t same = 0;  // dims before the first that differs
  while (same < from.size() && from[same] == to[same]) ++same;
  if (same == from.size()) return at;
  Term rest = at, out = number_like(at, 0);
  for (size_t d = from.size(); d-- > same;) {
    const Term extent = size_as(b, at.dtype(), from[d]);
    const sym::Expr stride = count(to, static_cast<int64_t>(d) + 1, static_cast<int64_t>(to.size()));
    out = out + apply(OpKind::kMod, rest, extent) * size_as(b, at.dtype(), stride);
    rest = rest / extent;
  }
  return out + rest * size_as(b, at.dtype(), count(to, static_cast<int64_t>(same), std::ssize(to)));
}

// The shape that the flat indices of a MaxUnpool with `output_shape` refer to.
// - A MaxPool's indices refer to the pooled tensor, whose shape output_shape restores, as in onnxruntime
//   (core/providers/cpu/nn/Unpool.cc, pull request 2193) and PyTorch (max_unpool2d with output_size).
// - For other indices the model does not say. In ONNX's test maxunpool_export_with_output_shape and its
//   reference implementation they refer to the shape given by kernel_shape, strides and pads, `inferred`,
//   and the result is padded with zeros at the end. This applies if output_shape is at least as large in
//   every dim; otherwise they refer to output_shape.
Shape index_space(const Context& c, const Shape& inferred, const Shape& wanted) {
  if (from_max_pool(c.b.graph(), c.in(1))) return wanted;
  sym::Expr padded = 1;
  for (size_t d = 0; d < wanted.size(); ++d)
    padded = sym::logical_and(padded, sym::ge(wanted[d], inferred[d]));
  Shape space;
  for (size_t d = 0; d < wanted.size(); ++d)
    space.push_back(c.b.simplify(sym::select(padded, inferred[d], wanted[d])));
  return space;
}

// Scatters the values of x into zeros at the indices, as in onnxruntime: indices are flat, in row-major order
// of the whole result, even those of a MaxPool with storage_order 1 or of a tensor of another size.
Outputs max_unpool(Context& c) {
  const Term x = c.in(0), indices = c.in(1);
  const Window window = read_window(c, x, kernel_shape(c));
  if (indices.rank() != x.rank())
    c.does_not_fit(cat("indices of rank ", indices.rank(), " for values of rank ", x.rank()));
  Shape shape = x.shape();
  for (size_t d = 0; d < shape.size(); ++d)
    c.b.require(sym::eq(indices.shape()[d], shape[d]), cat("dim ", d, ": {0} indices for {1} values"),
                {indices.shape()[d], shape[d]});
  for (size_t i = 0; i < window.size.size(); ++i)
    shape[i + 2] = c.b.simplify((shape[i + 2] - 1) * window.strides[i] + window.size[i] - window.before[i] -
                                window.after[i]);
  // Unsigned, so that a negative index is an error instead of counting from the end.
  Term at = cast(reshape(indices, {count(x.shape())}), DType::kU64);
  if (c.has(2)) {
    const Shape wanted = c.sizes_of(2, "output_shape", 0, kLargestSize);
    if (wanted.size() != shape.size())
      c.does_not_fit(cat("output_shape has ", wanted.size(), " values for an input of rank ", shape.size()));
    for (size_t d = 0; d < 2; ++d)
      c.b.require(sym::eq(wanted[d], shape[d]), cat("dim ", d, " of output_shape is {0}, of the values {1}"),
                  {wanted[d], shape[d]});
    at = moved_index(at, index_space(c, shape, wanted), wanted);
    shape = wanted;
  }
  const Term zeros = filled(c.b, {count(shape)}, x.dtype(), 0), values = reshape(x, {count(x.shape())});
  const Term out(c.b, c.b.add1(OpKind::kScatterElements, {zeros.id(), at.id(), values.id()},
                               {{"dim", int64_t{0}}, {"reduction", std::string("none")}}));
  return {reshape(out, shape)};
}

constexpr Row kRows[] = {
    {"AveragePool", average_pool},
    {"CausalConvWithState", causal_conv_with_state, 27},
    {"CausalConvWithState", causal_conv_with_state, 1, kAnyLater, "com.microsoft"},
    {"Conv", conv},
    {"ConvTranspose", conv_transpose},
    {"GlobalAveragePool", global_average_pool},
    {"GlobalLpPool", global_lp_pool},
    {"GlobalMaxPool", global_max_pool},
    {"LpPool", lp_pool},
    {"MaxPool", max_pool},
    {"MaxUnpool", max_unpool},
};

}  // namespace

std::span<const Row> window_rows() { return kRows; }

}  // namespace stridec::onnx
