// Products of one row and a matrix of weights, on a GPU: what a decoder's step is made of. They wait for memory alone,
// and for each other; so their nests take in all that is small beside the weights:
//
//   s    = reduce k x[k]^2                 for n: s     = reduce k x[k]^2
//   for k: t[k] = f(x[k], s)          ->          t[k]  = f(x[k], s)           for k
//   for n: u[n] = reduce k t[k] * A[k, n]         u     = reduce k t[k] * A[n, k]
//   for n: y[n] = g(u[n], reduce k t[k] * B[k, n])  y[n] = g(u, reduce k t[k] * B[n, k])
//
// Rows that are cheap to make are made by whoever reads them; on the GPU a block does so once for all its points
// (codegen/cuda/reduction/emit_cooperative.cpp). Products of one row that run over the same columns are one nest. Weights lie along the
// depth, which a warp reads in one go for each column.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void fuse_gemvs(loop::Program& program);

}  // namespace stridec::schedule
