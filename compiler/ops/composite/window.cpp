#include "compiler/ops/composite/window.h"

#include "compiler/base/text.h"
#include "compiler/ops/shapes.h"

namespace stridec::ops {

graph::Attributes Window::attributes() const {
  return {{"window", size},   {"strides", strides}, {"dilations", dilations},
          {"before", before}, {"after", after},     {"extra", extra}};
}

Window window_over(Term x, const Shape& size, Dims strides, Dims dilations) {
  const size_t n = size.size();
  if (x.shape().size() != n + 2)
    does_not_fit(cat("a window over ", n, " dims does not fit an input of rank ", x.rank()));
  if (strides.size() != n || dilations.size() != n)
    does_not_fit("strides or dilations do not fit the window's rank");
  for (size_t i = 0; i < n; ++i)
    if (strides[i] < 1 || dilations[i] < 1) does_not_fit("strides and dilations must be positive");
  return {.size = size,
          .strides = std::move(strides),
          .dilations = std::move(dilations),
          .before = Shape(n, 0),
          .after = Shape(n, 0),
          .extra = Shape(n, 0)};
}

void pad_same(Term x, Window& w, bool upper) {
  Builder& b = x.builder();
  for (size_t i = 0; i < w.size.size(); ++i) {
    const sym::Expr in = x.shape()[i + 2], out = sym::ceildiv(in, w.strides[i]);
    const sym::Expr total = b.simplify(sym::max((out - 1) * w.strides[i] + w.reach(i) - in, 0));
    const sym::Expr half = b.simplify(sym::floordiv(total, 2)), rest = b.simplify(total - half);
    w.before[i] = upper ? half : rest;
    w.after[i] = upper ? rest : half;
  }
}

void round_up(Term x, Window& w) {
  for (size_t i = 0; i < w.size.size(); ++i) {
    const sym::Expr in = x.shape()[i + 2], padded = in + w.before[i] + w.after[i];
    sym::Expr out = sym::ceildiv(padded - w.reach(i), w.strides[i]) + 1;
    out = sym::select(sym::ge((out - 1) * w.strides[i], in + w.before[i]), out - 1, out);
    w.extra[i] = x.builder().simplify((out - 1) * w.strides[i] + w.reach(i) - padded);
  }
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

}  // namespace stridec::ops
