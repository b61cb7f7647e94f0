// The windows of pooling ops, over the trailing (spatial) dims of a tensor.
#pragma once

#include <vector>

#include "compiler/ops/shapes.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

struct PoolingWindows {
  std::vector<sym::Expr> window;
  std::vector<int64_t> strides, dilations;
  std::vector<sym::Expr> before, after, extra;
  size_t spatial() const { return window.size(); }
};

// From the node's attributes.
PoolingWindows pooling_windows(const Node& node);

// Sums g [..., windows] over the windows that reach each position of [..., to's spatial dims]; with `places`
// (as of window_argmax) over those that chose the position.
Term window_spread(Term g, std::optional<Term> places, const Shape& to, const PoolingWindows& windows);

}  // namespace stridec::ops
