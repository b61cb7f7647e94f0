// Device functions that both forms of attention's backward pass for Hopper use.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/base/dtype.h"

namespace stridec::codegen::cuda {

// low_of(pair) and high_of(pair), which convert two 16-bit floats.
std::string backward_numbers(DType dtype);

// Bulk copies, conversions, and the products of warp groups for scores of `columns` queries and results of
// `depth` columns; follows memory_declarations() and barrier_declarations(), and constants kDepth, kRows,
// kKeys and kPart (the number of `columns`).
std::string backward_machine(int columns, int64_t depth, DType dtype);

}  // namespace stridec::codegen::cuda
