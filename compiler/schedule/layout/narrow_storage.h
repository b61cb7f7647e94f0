// What kernels pass on to one another in the type that products take.
#pragma once

#include "compiler/base/dtype.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// With --precision, large f32 buffers between kernels hold `factors` (f16, bf16) instead: stores round, loads widen, what
// a kernel computes in registers stays f32. Left alone: inputs, outputs and states; what routines and the host read;
// sums of reductions other than contractions, as means and partial results are; running values of scans; small
// buffers, where there is nothing to gain. A nest that stores a number both ways stores it once from then on.
// f32 and tf32, which takes as much room: changes nothing.
void narrow_storage(loop::Program& program, DType factors);

// For targets that compute nothing in tf32: f32 in its place, which nothing is rounded to.
void widen_tf32(loop::Program& program);

}  // namespace stridec::schedule
