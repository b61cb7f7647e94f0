// Block-quantised weights: GEMM factors that are computed from much smaller weights, that is, integers of a
// few bits with per-block scales and zero points (MatMulNBits, DequantizeLinear with block_size). Memory
// holds the parts from which such a factor is computed, each in panels of the vectorised columns:
//
//   [batch dims][panel][k / step][columns of the panel]
//
// A part of few bits is stored in 32-bit words: the i-th of a word's consecutive k is at bit i * bits.
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernels/contraction.h"
#include "compiler/kernels/integer_range.h"

namespace stridec::kernels {

struct QuantizedPart {
  loop::ValueId value;
  // The value is constant over at least this many consecutive k, counted from 0; 0: over all k.
  int64_t step = 0;
  int bits = 0;  // width of value - low, which is unsigned; 0: elements have the value's dtype
  int64_t low = 0;
  int64_t per_word() const { return 32 / bits; }
};

// Returns the parts that the panels of the columns have to hold for `factor`, whose slice reads only weights.
// `k`: the reduced dims in row-major order. Returns nothing if sizes are unknown or a statement that is
// computed at run time depends on a column index.
std::optional<std::vector<QuantizedPart>> quantized_parts(const loop::Program& program,
                                                          const loop::Nest& nest, const Factor& factor,
                                                          const std::vector<loop::Dim>& columns,
                                                          const std::vector<loop::Dim>& k);

// Returns the statements of the slice that `value` depends on, in order.
std::vector<const loop::Stmt*> slice_of(const std::vector<const loop::Stmt*>& slice, loop::ValueId value);

// Sets `to` for the variables of `dims` in terms of their flattened row-major index; flattened() is the
// inverse.
void unflatten(sym::Expr number, const std::vector<loop::Dim>& dims, sym::Substitution& to);
sym::Expr flattened(const std::vector<loop::Dim>& dims);

// Returns the largest number of consecutive k, counted from 0, over which the expressions are constant; 0:
// over all k.
int64_t step_along(const std::vector<sym::Expr>& exprs, const std::vector<loop::Dim>& k);

}  // namespace stridec::kernels
