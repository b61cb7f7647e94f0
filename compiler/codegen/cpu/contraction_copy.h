// Transposing copies through registers.
#pragma once

#include <string>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen::cpu {

// Prints loops for to[i * to_step + j] = from[j * from_step + i], i < rows, j < columns, of f32 or f64
// elements; `from` is contiguous along i. Every argument is C text that may be evaluated repeatedly.
struct TransposedCopy {
  DType dtype;
  std::string to, to_step, from, from_step, rows, columns;
};
void print_transposed_copy(KernelText& text, const TransposedCopy& copy, int lanes);

// Transposes `size` vectors of `size` lanes in the C array `vectors`: v[l][k] becomes v[k][l].
void print_turned_square(KernelText& text, const std::string& vectors, int size);

}  // namespace stridec::codegen::cpu
