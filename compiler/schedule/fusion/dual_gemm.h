// Two products of one value by two weights that meet in one result become one kernel: gates of transformers and of
// convolutions.
//
//   t[m, n] = act(sum x[m, k] * g[k, n])                  y[m, n] = act(sum x[m, k] * w[k, n + 8 * (n // 8)])
//   y[m, n] = t[m, n] * sum x[m, k] * u[k, n]        ->             * sum x[m, k] * w[k, n + 8 * (n // 8) + 8]
//
//   t[m, n] = sum x[m, k] * v[k, n]                       the same, w of the columns of v
//   y[m, n] = act(t[m, n]) * t[m, n + N]
//
// w holds 8 columns of the one beside 8 of the other (kernels/dual_gemm.h). Where the model of products expects it to take no
// longer than what it replaces: t need not be written and read, x is read once, and half as many sums go to memory.
// Products of one row have a kernel of their own (gemv_fusion.h).
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void fuse_dual_gemm(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
