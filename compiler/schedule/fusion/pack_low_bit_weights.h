// Products by weights of few bits, on a GPU: what a decoder's linear layers are once they are quantised. The weights stay
// as small as they are, in the words of kernels/packed_weights.h:
//
//   for m, n: y[m, n] = reduce k x[m, k] * f16((number[n, k] - zero[n, k / 32]) * scale[n, k / 32])
//
// becomes, where there are few m or warp groups of Hopper multiply, one kernel that takes the numbers out of their words in
// registers; where there are many, the factor is written to scratch in the type that the product takes, and read by a
// product like any other; where that is not known, both, and the run decides. Weights that were computed ahead, as floats,
// are taken back to what they were computed from.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void pack_low_bit_weights(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
