// Fuses two GEMMs that share their left operand and whose results are combined elementwise into one kernel:
// the gate and up projections of transformers (SwiGLU), and gated convolutions.
//
//   t[m, n] = act(sum x[m, k] * g[k, n])                y[m, n] = act(sum x[m, k] * w[k, n + 8 * (n // 8)])
//   y[m, n] = t[m, n] * sum x[m, k] * u[k, n]      ->             * sum x[m, k] * w[k, n + 8 * (n // 8) + 8]
//
//   t[m, n] = sum x[m, k] * v[k, n]                     the same, w of the columns of v
//   y[m, n] = act(t[m, n]) * t[m, n + N]
//
// w interleaves groups of 8 columns of both weights (kernels/dual_gemm.h). Applies where the GEMM cost model
// expects the fused kernel to take no longer than what it replaces: t is neither written nor read, x is read
// once, and half as many sums go to memory. GEMVs (one row) have a kernel of their own (gemv_fusion.h).
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void fuse_dual_gemm(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
