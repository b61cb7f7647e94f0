// Axes that need not be known before the run: they are expressions, and so are the shapes of what is made with them. How
// many there are is known, so that ranks are.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct Axes {
  std::vector<sym::Expr> at;  // counted from the front, all different
  int64_t rank = 0;           // of the tensor whose axes they are

  std::optional<Dims> known() const;
  sym::Expr has(int64_t dim) const;  // a condition: dim is one of them
  // The value of the axis that dim is; `otherwise` where it is none. One value per axis.
  sym::Expr pick(int64_t dim, const std::vector<sym::Expr>& values, sym::Expr otherwise) const;
  // The size of the dim that the only axis is.
  sym::Expr pick_size(const Shape& shape) const;
};

// `values` count from the front, or from the end where they are negative; guards say that they fit and are different.
Axes axes_of(Builder& b, const std::vector<sym::Expr>& values, int64_t rank);

// The shape without the axes.
Shape without(const Shape& shape, const Axes& axes);
// The shape of rank axes.rank that has 1 at the axes and the dims of `shape` elsewhere.
Shape between_ones(const Shape& shape, const Axes& axes);

// x [n..., more...] as [kept..., taken..., more...], where n, kept and taken have axes.rank dims: a dim that is an axis is
// 1 in kept and whole in taken, another one the other way round. What is done along all of taken is done along the axes.
Term apart(Term x, const Axes& axes);
// Back: every dim is kept * taken. Along the axes a single one may have changed its size.
Term together(Term parts, const Axes& axes);

}  // namespace stridec::ops
