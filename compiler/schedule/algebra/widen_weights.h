#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Keeps a GEMM factor that is computed from weights in f32 if the nest rounds it to a 16-bit float and
// multiplies in f32. On targets without instructions that multiply the narrow type, the rounding takes longer
// than the GEMM.
void widen_weights(loop::Program& program);

}  // namespace stridec::schedule
