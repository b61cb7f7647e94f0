// Factors of contractions that are computed from weights much smaller than themselves: numbers of a few bits, with
// scales and zero points of blocks (MatMulNBits, DequantizeLinear with block_size). Memory holds the parts that such a
// factor is computed from, each in panels of the vectorised columns,
//
//   [batch dims][panel][k / step][columns of the panel]
//
// where a part of few bits is in 32-bit words, element i of a word's consecutive k at bit i * bits.
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernels/contraction.h"
#include "compiler/kernels/integer_range.h"

namespace stridec::kernels {

struct QuantizedPart {
  loop::ValueId value;
  int64_t step = 0;  // the same for this many consecutive k, counted from 0, at least; 0: for all k
  int bits = 0;      // of value - low, an unsigned number; 0: elements of the value's dtype
  int64_t low = 0;
  int64_t per_word() const { return 32 / bits; }
};

// What the columns' panels have to hold for `factor`, whose slice reads weights alone. `k`: the reduced dims in the order
// in which they are numbered. Nothing where sizes are not known or a statement that stays needs a column's number.
std::optional<std::vector<QuantizedPart>> quantized_parts(const loop::Program& program,
                                                          const loop::Nest& nest, const Factor& factor,
                                                          const std::vector<loop::Dim>& columns,
                                                          const std::vector<loop::Dim>& k);

// The statements of the slice that `value` is computed by, in order.
std::vector<const loop::Stmt*> slice_of(const std::vector<const loop::Stmt*>& slice, loop::ValueId value);

// The dims' variables in terms of their number in row-major order.
void unflatten(sym::Expr number, const std::vector<loop::Dim>& dims, sym::Substitution& to);
sym::Expr flattened(const std::vector<loop::Dim>& dims);

// The most consecutive k, counted from 0, for which the expressions are the same; 0: they are the same for all k.
int64_t step_along(const std::vector<sym::Expr>& exprs, const std::vector<loop::Dim>& k);

}  // namespace stridec::kernels
