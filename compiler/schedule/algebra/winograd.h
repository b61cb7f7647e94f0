// Convolutions with a 3x3 window and stride 1 in fewer multiplications: Winograd's minimal filtering F(m x m, 3 x 3)
// (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308), with t = m + 2.
//
//   for n, c, y<H, x<W: out[n,c,y,x] = f(sum over i, r<3, s<3 of in[n, i, y + r, x + s] * w[c,i,r,s])
//
//   U[t*p + q, i, c]     = (G w G^T)[p,q]                at compile time
//   V[t*p + q, n,y,x, i] = (B^T in B)[p,q]               of the t x t elements from (m*y, m*x) on
//   M[q, n,y,x, c]       = sum over i of V[q,n,y,x,i] * U[q,i,c]
//   out[n, c, m*y + p, m*x + q] = f((A^T M A)[p,q])      for p, q < m, inside H x W
//
// Convolutions of one value with several weights share V, and U and M hold the columns of all of them; each has an output
// transform of its own.
//
// Three nests in place of one: the products, t*t in m*m*9, are a batched contraction; the transforms are ordinary nests
// over tiles. Rounding errors grow, to about 2e-5 of the largest result for m = 4; an input that is not finite
// reaches all of its tile.
#pragma once

#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// The three nests, in order, that do what `nest` does with tiles of m x m outputs, m 2 or 4; the nest that makes U joins
// program.prepack and buffers are added. None, with the reason, where the nest is no such convolution by f32 weights.
std::vector<loop::Nest> winograd(loop::Program& program, const loop::Nest& nest, int m, std::string* reason);

// Convolutions become Winograd's where the arithmetic saved is worth more than the memory moved; those of one value together,
// where what passes between the transforms and the weights stay in caches as they do for each by itself.
void apply_winograd(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
