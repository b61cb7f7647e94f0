// What follows a product of one row by weights, on a GPU: a small nest that reads few columns of it at a time goes into it.
//
//   for n<2NH: u[n] = reduce k x[k] * A[n, k]        for h<H, i<N: a = reduce k x[k] * A[2Nh + i, k]
//   nest ()                                     ->                 b = reduce k x[k] * A[2Nh + N + i, k]
//     for h<H, i<N: y[h, i] = f(u[2Nh + i], u[2Nh + N + i])        y[h, i] = f(a, b)
//
// as a decoder's queries and keys are turned by their places, halves of a head with each other, and put into a cache. A
// point makes all columns that one round of the loops reads, so that nothing passes through memory and no launch waits
// for another. Loops that read part of the columns run where their columns are.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

void fuse_gemv_epilogues(loop::Program& program);

}  // namespace stridec::schedule
