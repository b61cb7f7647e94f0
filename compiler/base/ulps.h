// Distances between floats in units in the last place.
#pragma once

#include <cstdint>

#include "compiler/base/dtype.h"

namespace stridec {

// The number of steps from one float of the type to the next that lead from a to b, which are bit patterns.
// Zeros of both signs are one number, and so are all NaNs. Between a NaN or an infinity and another number:
// UINT64_MAX.
uint64_t ulps_between(DType type, uint64_t a, uint64_t b);

}  // namespace stridec
