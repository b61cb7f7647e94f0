#include "compiler/ops/composite/convolution.h"

#include "compiler/base/text.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

using graph::OpKind;

Term convolution(Term x, Term w, const Window& window, int64_t groups) {
  Builder& b = x.builder();
  return {b, b.add1(OpKind::kConv, {x.id(), w.id()},
                    {{"strides", window.strides},
                     {"dilations", window.dilations},
                     {"before", window.before},
                     {"after", window.after},
                     {"groups", groups}})};
}

Term transposed_convolution(Term x, Term w, const TransposedConvolution& options) {
  Builder& b = x.builder();
  return {b, b.add1(OpKind::kConvTranspose, {x.id(), w.id()},
                    {{"strides", options.strides},
                     {"dilations", options.dilations},
                     {"before", options.before},
                     {"after", options.after},
                     {"output_extra", options.extra},
                     {"groups", options.groups}})};
}

void set_output_size(Term x, Term w, TransposedConvolution& o, size_t i, sym::Expr size, bool upper) {
  Builder& b = x.builder();
  const sym::Expr taps = w.shape()[i + 2];
  const sym::Expr full = (x.shape()[i + 2] - 1) * o.strides[i] + (taps - 1) * o.dilations[i] + 1 + o.extra[i];
  const sym::Expr total = b.simplify(full - size), half = b.simplify(sym::floordiv(total, 2));
  o.before[i] = upper ? half : b.simplify(total - half);
  const sym::Expr back = b.simplify(total - o.before[i]);
  o.extra[i] = b.simplify(o.extra[i] + sym::max(-back, 0));
  o.after[i] = b.simplify(sym::max(back, 0));
}

Term channel_bias(Term y, Term bias) {
  Shape shape(y.shape().size() - 1, 1);
  shape[0] = bias.dim(0);
  y.builder().require(sym::eq(shape[0], y.dim(1)), "a bias of {0} numbers for {1} channels",
                      {shape[0], y.dim(1)});
  return y + reshape(bias, shape);
}

CausalConvolution causal_convolution(Term x, Term w, std::optional<Term> bias, std::optional<Term> past,
                                     int64_t dilation) {
  Builder& b = x.builder();
  if (x.rank() != 3 || w.rank() != 3 || (past && past->rank() != 3))
    does_not_fit("input, weight and state have three dims");
  if (dilation < 1) does_not_fit(cat("dilation is ", dilation));
  const sym::Expr length = x.dim(2), taps = w.dim(2), kept = b.simplify((taps - 1) * dilation);
  b.require(sym::eq(w.dim(0), x.dim(1)), "weights of {0} channels for {1} channels", {w.dim(0), x.dim(1)});
  b.require(sym::eq(w.dim(1), 1), "each channel has its own taps, but the weight's second dim is {0}",
            {w.dim(1)});
  b.require(sym::ge(taps, 1), "a weight of {0} taps", {taps});
  const Term before = past ? *past : filled(b, {x.dim(0), x.dim(1), kept}, x.dtype(), 0);
  b.require(sym::eq(before.dim(2), kept), "a state of {0} positions for {1} taps", {before.dim(2), taps});
  const Term all = concat({before, x}, 2);
  const auto convolved = [&]() -> Term {
    if (const auto groups = sym::as_const(x.dim(1)))
      return convolution(all, w, window_over(all, {taps}, {1}, {dilation}), *groups);
    const Shape grid{length, taps};
    const Term at = index_along(b, grid, 0, DType::kI64) +
                    index_along(b, grid, 1, DType::kI64) * static_cast<double>(dilation);
    return cast(reduce_sum(widen(gather(all, at, 2)) * widen(w), {3}), x.dtype());
  };
  Term y = convolved();
  if (bias) y = channel_bias(y, *bias);
  return {y, slice(all, 2, length, kept)};
}

}  // namespace stridec::ops
