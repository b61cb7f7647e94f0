// Scalar operations on lanes of cells; each result is rounded or wrapped to its dtype.
#pragma once

#include "compiler/loop/bytecode.h"

namespace stridec::loop::bytecode {

// d[l] = op(a[l], b[l], c[l]) for l < n. Pointers of operands that the op does not have may point anywhere
// valid. `type` is the dtype of the (last) operand, and of the result except for comparisons.
void scalar_op(ScalarOp op, DType type, Cell* d, const Cell* a, const Cell* b, const Cell* c, int n);

// Value conversion as kCast and kCastSat define it.
void convert(DType from, DType to, bool saturate, Cell* d, const Cell* a, int n);
void bitcast(DType from, DType to, Cell* d, const Cell* a, int n);

// acc = combine(acc, value) for combines of one value. Float sums and products stay unrounded.
void combine_lanes(Combine combine, DType type, Cell* acc, const Cell* value, int n);
// Argmax and the like on (key, index) pairs: the better key wins, then the better index.
void combine_pairs(Combine combine, DType key_type, Cell* key, Cell* index, const Cell* new_key,
                   const Cell* new_index, int n);
// Rounds accumulators to their dtype.
void round_lanes(DType type, Cell* d, int n);

Cell to_cell(const Scalar& value);
Scalar to_scalar(DType type, Cell value);

// One element of memory.
Cell load_cell(DType type, const uint8_t* element);
void store_cell(DType type, uint8_t* element, Cell value);

}  // namespace stridec::loop::bytecode
