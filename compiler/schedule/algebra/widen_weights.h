// Keeps GEMM factors that are computed from weights in f32, without rounding them to 16 bits.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Applies to factors that the nest rounds to a 16-bit float and then multiplies in f32. On targets without
// instructions that multiply the narrow type, the rounding takes longer than the GEMM.
void widen_weights(loop::Program& program);

}  // namespace stridec::schedule
