#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Products by numbers that are computed from weights, rounded to floats of 16 bits and multiplied in f32 take them as they
// are computed: where no instruction multiplies the narrow ones, the rounding takes longer than the product.
void widen_weights(loop::Program& program);

}  // namespace stridec::schedule
