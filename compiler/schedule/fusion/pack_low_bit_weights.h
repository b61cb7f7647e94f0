// GEMMs with low-bit weights on a GPU, as in a quantised decoder's linear layers. The weights stay packed, in
// the format of kernels/packed_weights.h:
//
//   for m, n: y[m, n] = reduce k x[m, k] * f16((number[n, k] - zero[n, k / 32]) * scale[n, k / 32])
//
// With few rows m, or if Hopper warp groups multiply, this becomes one kernel that unpacks the weights in
// registers. With many rows the weights are dequantised to scratch in the type the GEMM takes, followed by an
// ordinary GEMM. If m is not known, both versions are emitted and the run decides. Weights that were
// dequantised ahead, as floats, are traced back to what they were computed from.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void pack_low_bit_weights(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
