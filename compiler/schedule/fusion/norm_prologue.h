// What makes rows for products of few rows goes into the products, on a GPU: a norm in front of a projection.
//
//   for m: s = reduce k x[m, k]^2; for k: t[m, k] = f(x[m, k], s)
//   for m, n: y[m, n] = reduce k t[m, k] * w[k, n]
//
//   if m <= 16:  for m, n: s = ...; for k: t[k] = f(x[m, k], s); y[m, n] = reduce k t[k] * w[k, n]
//   else:        as before
//
// where the model of products expects every block's work on the rows to take less than a kernel of their own. Blocks make
// the rows of a tile once (kernels/norm_prologue.h), while weights are on their way. What reads the rows besides products
// finds them where the first product's first block stores them. Products of one row have a kernel of their own
// (gemv_fusion.h).
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

void fuse_norm_prologues(loop::Program& program, const GpuTarget& target,
                         std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
