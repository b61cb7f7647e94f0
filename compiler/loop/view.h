// A view: how to access a buffer as a tensor of another shape, without moving data.
//
// A view maps coordinates (one per dim of its shape) to an index into its buffer and a mask. Reshape,
// permute, slice, expand, flip, diagonal, pad and windows compose such maps; none is ever a kernel.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::loop {

struct View {
  BufferId buffer;
  DType dtype = DType::kF32;
  std::vector<sym::Expr> shape;
  std::vector<sym::Expr> coords;  // index variables for the coordinates, one per dim of shape
  std::vector<sym::Expr> index;   // of the buffer, over coords
  sym::Expr mask = 1;             // over coords; false: outside, where reads give fill
  Scalar fill;
};

View whole(const Program& program, BufferId buffer);

// The element at `at` (one expression per dim of view.shape).
Access access(const View& view, const std::vector<sym::Expr>& at);

// Row-major reinterpretation. The element counts must be equal (the caller adds a guard).
View reshape(const View& view, const std::vector<sym::Expr>& shape, const sym::Facts& facts);
// result.shape[i] = view.shape[order[i]]
View permute(const View& view, const std::vector<int>& order);
// result[..., i, ...] = view[..., start + step*i, ...] with `extent` elements; step may be negative.
View slice(const View& view, int dim, sym::Expr start, sym::Expr extent, sym::Expr step);
// NumPy broadcasting to `shape` (right-aligned). A dim equal to 1 is read at 0. If a symbolic dim may be
// either 1 or the target extent, the index is select(dim == 1, 0, coord).
View expand(const View& view, const std::vector<sym::Expr>& shape, const sym::Facts& facts);
View drop_dim(const View& view, int dim);  // of extent 1; it is read at 0
// result[i] = view[i - before] inside, fill outside; `before` and `after` may be negative (crop). Nothing if
// the view already has a mask with another fill; the caller then materialises it first.
std::optional<View> pad(const View& view, const std::vector<sym::Expr>& before,
                        const std::vector<sym::Expr>& after, Scalar fill);

}  // namespace stridec::loop
