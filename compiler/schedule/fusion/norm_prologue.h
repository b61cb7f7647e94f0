// Prologue fusion on a GPU: fuses the nest that computes the rows (a norm before a projection) into GEMMs of
// few rows.
//
//   for m: s = reduce k x[m, k]^2; for k: t[m, k] = f(x[m, k], s)
//   for m, n: y[m, n] = reduce k t[m, k] * w[k, n]
//
//   if m <= 16:  for m, n: s = ...; for k: t[k] = f(x[m, k], s); y[m, n] = reduce k t[k] * w[k, n]
//   else:        as before
//
// Applies where the GEMM cost model expects every block's work on the rows to take less time than a separate
// kernel. A block computes the rows of its tile once (kernels/norm_prologue.h) while its weights are loading.
// Other readers of the rows find them in memory, where the first block of the first GEMM stores them. GEMVs
// (one row) have a kernel of their own (gemv_fusion.h).
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

void fuse_norm_prologues(loop::Program& program, const GpuTarget& target,
                         std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
