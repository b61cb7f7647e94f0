// Axes whose values may be known only at run time: axes, and the shapes computed from them, are expressions.
// The number of axes is known at compile time, and so is every rank.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ops/term.h"

namespace stridec::ops {

struct Axes {
  std::vector<sym::Expr> at;  // counted from the front, distinct
  int64_t rank = 0;           // of the tensor that the axes refer to

  std::optional<Dims> known() const;
  sym::Expr has(int64_t dim) const;  // condition: dim is one of the axes
  // The value of the axis that equals dim, or `otherwise` if none does. `values` has one value per axis.
  sym::Expr pick(int64_t dim, const std::vector<sym::Expr>& values, sym::Expr otherwise) const;
  // The size of the dim that the axis denotes; requires exactly one axis.
  sym::Expr pick_size(const Shape& shape) const;
};

// Negative values count from the end. Guards check that the values are in range and distinct.
Axes axes_of(Builder& b, const std::vector<sym::Expr>& values, int64_t rank);

// The shape without the axes.
Shape without(const Shape& shape, const Axes& axes);
// Shape of rank axes.rank: 1 at the axes, the dims of `shape` in order elsewhere.
Shape between_ones(const Shape& shape, const Axes& axes);

// Reshapes x [n..., more...] to [kept..., taken..., more...]; n, kept and taken have axes.rank dims each. A
// dim that is an axis has size 1 in kept and its full size in taken; any other dim has the reverse. An
// operation over all taken dims is therefore an operation over the axes.
Term apart(Term x, const Axes& axes);
// The inverse: each dim has size kept * taken. If there is a single axis, its size may have changed in
// between.
Term together(Term parts, const Axes& axes);

}  // namespace stridec::ops
