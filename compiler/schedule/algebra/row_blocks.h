// Runs the steps around a tensor that is too large to keep in blocks of rows, of which only one is in memory.
//
//   y[r, v] = sum over d of h[r, d] w[v, d]              for each block of rows:
//   s[r]    = sum over v of exp(y[r, v])                   y, s, g of its rows
//   g[r, v] = exp(y[r, v]) / s[r] - onehot[r, v]     ->    dh of its rows
//   dh[r, d] = sum over v of g[r, v] w[v, d]               dw += sum over its rows of g[r, v] h[r, d]
//   dw[v, d] = sum over r of g[r, v] h[r, d]
//
// The loss over a large vocabulary is such a chain: its logits and their gradient are the largest tensors of
// a training step ("cut cross-entropy", Wijmans et al., arXiv 2411.09009, does it in one kernel). Sums over
// rows are accumulated from block to block in order, so that results do not depend on threads. Blocks have
// enough rows that reading the weight and updating its gradient, once per block, takes little of the time of
// the products.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// For programs of CPUs alone: a GPU has the memory, and records a run without loops as one graph. Runs before
// fusion, while each nest is one operation. The steps that touch the tensors of rows, and those between them,
// must be launches that treat each row by itself or sum over rows; one at least must sum. Rows of windows
// (convolutions) stay together.
void block_rows(loop::Program& program);

}  // namespace stridec::schedule
