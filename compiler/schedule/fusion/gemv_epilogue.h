// Epilogue fusion of GEMVs on a GPU: fuses a following small nest that reads few columns of the result at a
// time.
//
//   for n<2NH: u[n] = reduce k x[k] * A[n, k]        for h<H, i<N: a = reduce k x[k] * A[2Nh + i, k]
//   nest ()                                     ->                 b = reduce k x[k] * A[2Nh + N + i, k]
//     for h<H, i<N: y[h, i] = f(u[2Nh + i], u[2Nh + N + i])        y[h, i] = f(a, b)
//
// Example: a decoder rotates queries and keys by position (RoPE), which pairs the two halves of a head, and
// appends them to a cache. Each point computes all columns that one iteration of the loops reads, so that no
// intermediate goes through memory and no launch waits for another. Loops that read only part of the columns
// run with the points of those columns.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void fuse_gemv_epilogues(loop::Program& program);

}  // namespace stridec::schedule
