// Slices with Python's bounds, shared by views and by operators that write slices.
#pragma once

#include <optional>

#include "compiler/frontend/aten/storage.h"

namespace stridec::aten {

struct Slice {
  sym::Expr start, extent;
  int64_t step = 1;
};

// Bounds as in Python: negative ones count from the end, those out of range are clamped; none: to the end.
Slice python_slice(Builder& b, sym::Expr size, std::optional<sym::Expr> start, std::optional<sym::Expr> end,
                   int64_t step = 1);
// An index in [-size, size), which a guard checks.
sym::Expr python_index(Builder& b, sym::Expr size, sym::Expr index);

// Base with the slice replaced by the value, which has the slice's shape.
Term replace_slice(Term base, int64_t dim, const Slice& slice, Term value);

// The view of a slice, and of one position without its dim.
Tensor slice_view(const Tensor& t, int64_t dim, const Slice& slice);
Tensor select_view(const Tensor& t, int64_t dim, sym::Expr index);

// Elements at these strides over a tensor whose memory is in row-major order. `first`: the place of the first
// one, a scalar.
Tensor strided_view(const Tensor& memory, const Shape& sizes, const Shape& strides,
                    const std::function<Term(Term memory)>& first);

}  // namespace stridec::aten
