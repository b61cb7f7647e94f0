// Prologues of products: what is made for a product alone, element by element, is made where the product copies its rows.
//
//   for r, k: t[r,k] = f(x[r,k])                          for r, n: y[r,n] = reduce k f(x[r,k]) * w[k,n]
//   for r, n: y[r,n] = reduce k t[r,k] * w[k,n]     ->
//
// as a normalisation and an activation in front of a convolution of 1x1, which fold into nothing before them, or channels
// scaled by what they hold (squeeze and excitation, ConvNeXt's response normalisation). t is neither stored nor loaded, and
// there is a kernel less; instead a block of rows is copied to scratch, once for all columns, where the product would have
// read it in place. So the product has to have many columns, t has to be large, and no element may be read by several rows,
// as a window reads it.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

// Behind layouts, strips and what joins products of one value.
void fuse_gemm_prologues(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
