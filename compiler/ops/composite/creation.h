// Tensors made from numbers and sizes.
#pragma once

#include "compiler/ops/term.h"

namespace stridec::ops {

// start, start + delta, ... below limit (above it, if delta is negative): scalars of one dtype. The length
// may be bound at run time. Throws Error for a known delta of 0, and for more elements than a tensor holds.
Term arange(Term start, Term limit, Term delta);

// Bool [rows, columns]: column - row == diagonal.
Term eye(Builder& b, const Shape& shape, sym::Expr diagonal);
// x [..., rows, columns] on and above (`upper`) or on and below the k-th diagonal, else 0.
Term triangle(Term x, sym::Expr k, bool upper);

}  // namespace stridec::ops
