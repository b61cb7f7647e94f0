// Stores intermediates between kernels in the type that GEMMs take.
#pragma once

#include "compiler/base/dtype.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// With --precision, large f32 buffers between kernels hold `factors` (f16, bf16) instead: stores round, loads
// widen, and values in registers stay f32. Unchanged are inputs, outputs and states; buffers that routines
// and the host read; sums, such as means and partial results, other than those of contractions and of windows
// of a few neighbours; running values of scans; what changes a state by small steps, such as a gradient; and
// small buffers, where there is nothing to gain. A nest that stores a value in both types then stores it
// once. Does nothing for f32, and for tf32, which has the same size.
void narrow_storage(loop::Program& program, DType factors);

// For targets without tf32 arithmetic: replaces tf32 by f32, without rounding.
void widen_tf32(loop::Program& program);

}  // namespace stridec::schedule
