// Convolution and pooling.
#include "compiler/frontend/onnx/window.h"

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/activations.h"
#include "compiler/ops/composite/convolution.h"
#include "compiler/ops/composite/pooling.h"

namespace stridec::onnx {

using namespace ops;

Window read_window(const Context& c, Term x, const Shape& size) {
  const size_t n = size.size();
  Window w = window_over(x, size, c.integers("strides", Dims(n, 1)), c.integers("dilations", Dims(n, 1)));
  const std::string mode = c.text("auto_pad", "NOTSET");
  const Dims pads = c.integers("pads", Dims(2 * n, 0));
  if (pads.size() != 2 * n) c.does_not_fit(cat("pads has ", pads.size(), " values for ", n, " dims"));
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    pad_same(x, w, mode == "SAME_UPPER");
  } else if (mode != "VALID") {
    w.before = Shape(pads.begin(), pads.begin() + static_cast<int64_t>(n));
    w.after = Shape(pads.begin() + static_cast<int64_t>(n), pads.end());
  }
  if (c.integer("ceil_mode", 0)) round_up(x, w);
  return w;
}

Term read_convolution(const Context& c, Term x, Term w, std::optional<Term> bias) {
  if (w.rank() < 3) c.does_not_fit(cat("the weights have rank ", w.rank(), ", at least 3 is needed"));
  const Window window = read_window(c, x, Shape(w.shape().begin() + 2, w.shape().end()));
  const Term y = convolution(x, w, window, c.integer("group", 1));
  return bias ? channel_bias(y, *bias) : y;
}

namespace {

Window pooling_window(const Context& c, Term x) {
  const Dims k = c.integers("kernel_shape");
  if (k.empty()) c.does_not_fit("kernel_shape is missing");
  return read_window(c, x, {k.begin(), k.end()});
}

Outputs conv(Context& c) { return {read_convolution(c, c.in(0), c.in(1), c.optional(2))}; }

// Not expanded by ONNX's function body, which needs constant sizes. com.microsoft's variant also has a
// dilation and channels-last data.
Outputs causal_conv_with_state(Context& c) {
  if (c.integer("ndim", 1) != 1) c.unsupported("CausalConvWithState over several spatial dims");
  if (c.integer("state_window", 0) != 0)
    c.unsupported("CausalConvWithState with the states of several steps");
  const bool last = c.integer("channels_last", 0) != 0;
  const auto laid = [&](Term t) { return last && t.rank() == 3 ? transpose(t, 1, 2) : t; };
  std::optional<Term> past;
  const Term x = laid(c.in(0));
  if (c.has(3)) past = laid(c.in(3));
  const std::string activation = c.text("activation", "none");
  const bool gated = activation == "silu" || activation == "swish";
  if (!gated && activation != "none") c.does_not_fit("activation is '" + activation + "'");
  const CausalConvolution y = causal_convolution(x, c.in(1), c.optional(2), past, c.integer("dilation", 1));
  return {laid(gated ? silu(y.value) : y.value), laid(y.past)};
}

Outputs conv_transpose(Context& c) {
  const Term x = c.in(0), w = c.in(1);
  if (w.rank() < 3 || x.rank() != w.rank())
    c.does_not_fit(cat("weights of rank ", w.rank(), " do not fit an input of rank ", x.rank()));
  const size_t n = w.shape().size() - 2;
  const Dims extra = c.integers("output_padding", Dims(n, 0)), pads = c.integers("pads", Dims(2 * n, 0)),
             wanted = c.integers("output_shape");
  const std::string mode = c.text("auto_pad", "NOTSET");
  TransposedConvolution o{.strides = c.integers("strides", Dims(n, 1)),
                          .dilations = c.integers("dilations", Dims(n, 1)),
                          .before = Shape(n, 0),
                          .after = Shape(n, 0),
                          .extra = Shape(extra.begin(), extra.end()),
                          .groups = c.integer("group", 1)};
  if (o.strides.size() != n || o.dilations.size() != n || extra.size() != n || pads.size() != 2 * n)
    c.does_not_fit("strides, dilations, pads or output_padding do not fit the weights' rank");
  for (size_t i = 0; i < n; ++i) {
    if (!wanted.empty()) {
      set_output_size(x, w, o, i, wanted.at(wanted.size() == n ? i : i + 2), mode == "SAME_UPPER");
    } else if (mode.starts_with("SAME")) {
      set_output_size(x, w, o, i, x.shape()[i + 2] * o.strides[i], mode == "SAME_UPPER");
    } else if (mode != "VALID") {
      o.before[i] = pads[i];
      o.after[i] = pads[i + n];
    }
  }
  const Term y = transposed_convolution(x, w, o);
  return {c.has(2) ? channel_bias(y, c.in(2)) : y};
}

// Indices are flat in the whole input. storage_order 1 counts spatial dims in column-major order.
Outputs op_max_pool(Context& c) {
  const Term x = c.in(0);
  const Window window = pooling_window(c, x);
  if (!c.wants(1)) return {max_pool(x, window)};
  const Shape spatial(x.shape().begin() + 2, x.shape().end());
  Term at = max_pool_positions(x, window);
  if (c.integer("storage_order", 0)) at = column_major_positions(at, spatial);
  at = tensor_positions(at, count(spatial));
  return {max_pool(x, window), at};
}

Outputs op_average_pool(Context& c) {
  const Term x = c.in(0);
  return {average_pool(x, pooling_window(c, x), c.integer("count_include_pad", 0) != 0)};
}

// An integer from version 2 on.
double norm_power(const Context& c) {
  const Attribute* p = c.node.find("p");
  return p && !p->floats.empty() ? c.number("p", 2) : static_cast<double>(c.integer("p", 2));
}
Outputs op_lp_pool(Context& c) { return {lp_pool(c.in(0), pooling_window(c, c.in(0)), norm_power(c))}; }
Outputs op_global_lp_pool(Context& c) { return {global_lp_pool(c.in(0), norm_power(c))}; }
Outputs op_global_average_pool(Context& c) { return {global_average_pool(c.in(0))}; }
Outputs op_global_max_pool(Context& c) { return {global_max_pool(c.in(0))}; }

Outputs op_max_unpool(Context& c) {
  const Window window = pooling_window(c, c.in(0));
  std::optional<Shape> wanted;
  if (c.has(2)) wanted = c.sizes_of(2, "output_shape", 0, kLargestSize);
  return {max_unpool(c.in(0), c.in(1), window, wanted)};
}

constexpr Row kRows[] = {
    {"AveragePool", op_average_pool},
    {"CausalConvWithState", causal_conv_with_state, 27},
    {"CausalConvWithState", causal_conv_with_state, 1, kAnyLater, "com.microsoft"},
    {"Conv", conv},
    {"ConvTranspose", conv_transpose},
    {"GlobalAveragePool", op_global_average_pool},
    {"GlobalLpPool", op_global_lp_pool},
    {"GlobalMaxPool", op_global_max_pool},
    {"LpPool", op_lp_pool},
    {"MaxPool", op_max_pool},
    {"MaxUnpool", op_max_unpool},
};

}  // namespace

std::span<const Row> window_rows() { return kRows; }

}  // namespace stridec::onnx
