// Prologue fusion of GEMMs: computes an elementwise producer of the left operand while the GEMM packs its
// rows.
//
//   for r, k: t[r,k] = f(x[r,k])                          for r, n: y[r,n] = reduce k f(x[r,k]) * w[k,n]
//   for r, n: y[r,n] = reduce k t[r,k] * w[k,n]     ->
//
// Examples are a normalisation and an activation before a 1x1 convolution, which cannot be folded into
// earlier weights, and channels scaled by their content (squeeze-and-excitation, ConvNeXt's response
// normalisation). t is neither stored nor loaded, and there is one kernel less. The cost is a copy of each
// block of rows to scratch, once for all columns, where the GEMM would have read it in place. So the GEMM
// must have many columns, t must be large, and no element may be read by several rows, as in a window.
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

// Runs after layouts, tile-and-fuse and merge_gemms.
void fuse_gemm_prologues(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
