// Fuses GEMVs (one row by a matrix of weights) on a GPU with the small nests around them. A decoder step
// consists of GEMVs, which are bound by memory and by waiting for each other:
//
//   s    = reduce k x[k]^2                 for n: s     = reduce k x[k]^2
//   for k: t[k] = f(x[k], s)          ->          t[k]  = f(x[k], s)           for k
//   for n: u[n] = reduce k t[k] * A[k, n]         u     = reduce k t[k] * A[n, k]
//   for n: y[n] = g(u[n], reduce k t[k] * B[k, n])  y[n] = g(u, reduce k t[k] * B[n, k])
//
// Rows that are cheap to compute are recomputed by each reader; on the GPU a block does so once for all its
// points (codegen/cuda/reduction/emit_cooperative.cpp). GEMVs over the same columns become one nest. Weights
// are contiguous along the depth, so that a warp reads each column with coalesced loads.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void fuse_gemvs(loop::Program& program);

}  // namespace stridec::schedule
