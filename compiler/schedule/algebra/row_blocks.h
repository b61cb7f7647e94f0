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

#include <limits>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Which tensors are worth it, and how many rows a block has.
struct RowBlocks {
  double bytes;             // least, of the tensor
  double least_rows, rows;  // of the products of a block: the bounds
  double blocks;            // least
  double sums;              // most bytes of sums over rows, as a share of the tensor's
};
inline constexpr RowBlocks kCpuRowBlocks = {.bytes = 64 << 20,
                                            .least_rows = 512,
                                            .rows = 512,
                                            .blocks = 2,
                                            .sums = std::numeric_limits<double>::infinity()};
// A GPU reads and writes the sums in each block at the rate of memory: the weight's gradient of 128,256
// classes takes 1.18 times as long with 2,048 rows and 1.57 times with 1,024 (H200). Logits and their
// gradient are one tensor if they are whole and two in a block, so that two blocks save nothing. Sums
// that other steps add to later, such as the gradient of a tied embedding, take memory for longer than
// the tensor would.
inline constexpr RowBlocks kGpuRowBlocks = {
    .bytes = 1 << 30, .least_rows = 1024, .rows = 2048, .blocks = 4, .sums = 0.5};

// Runs before fusion, while each nest is one operation. The steps that touch the tensors of rows, and those
// between them, must be launches that treat each row by itself or sum over rows; one at least must sum. Rows
// of windows (convolutions) stay together.
void block_rows(loop::Program& program, const RowBlocks& limits);

}  // namespace stridec::schedule
