// Winograd's minimal filtering F(m x m, 3 x 3) for 3x3 convolutions with stride 1: fewer multiplications
// (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308), with t = m + 2.
//
//   for n, c, y<H, x<W: out[n,c,y,x] = f(sum over i, r<3, s<3 of in[n, i, y + r, x + s] * w[c,i,r,s])
//
//   U[t*p + q, i, c]     = (G w G^T)[p,q]                at compile time
//   V[t*p + q, n,y,x, i] = (B^T in B)[p,q]               of the t x t elements from (m*y, m*x) on
//   M[q, n,y,x, c]       = sum over i of V[q,n,y,x,i] * U[q,i,c]
//   out[n, c, m*y + p, m*x + q] = f((A^T M A)[p,q])      for p, q < m, inside H x W
//
// Convolutions of one input with several weights share V. U and M then hold the columns of all of them, and
// each convolution has its own output transform.
//
// Three nests replace one. The multiplications (t*t instead of m*m*9 per tile) are a batched GEMM; the
// transforms are ordinary nests over tiles. Rounding errors grow to about 2e-5 of the largest output for
// m = 4. A non-finite input affects its whole tile.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Returns the three nests, in order, that replace `nest` with tiles of m x m outputs (m is 2 or 4). Adds
// buffers, and adds the nest that computes U to program.prepack. Returns none and sets `reason` if the nest
// is not a 3x3 stride-1 convolution by f32 weights.
std::vector<loop::Nest> winograd(loop::Program& program, const loop::Nest& nest, int m, std::string* reason);

// Applies Winograd where the saved arithmetic outweighs the added memory traffic. Convolutions of one input
// are transformed together if the intermediates and the weights still fit the caches as they do for each
// convolution alone.
void apply_winograd(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
