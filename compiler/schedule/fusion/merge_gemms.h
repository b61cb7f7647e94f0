// Merges GEMMs that share their left operand into one GEMM with several results, where that takes less time.
//
//   for r, c < 10: p[r,c] = f(sum k x[r,k] * v[k,c] + a[c])
//   for r, c < 4:  q[r,c] = g(sum k x[r,k] * w[k,c] + b[c])
//   ->
//   for r, c < 14: t = sum k x[r,k] * vw[k,c] + ab[c]
//                  c < 10: p[r,c] = f(t);  c >= 10: q[r,c - 10] = g(t)
//
// Every GEMM loads and packs x, and leaves lanes of its last vectors idle. A merged GEMM pays both costs once
// for all columns. Convolutions are GEMMs over windows, with channels as columns. Weights, and vectors along
// the columns such as biases, are concatenated at compile time (Program::prepack) where both nests do the
// same with them. Epilogues that differ are each computed for all columns and stored for their own columns
// only, so GEMMs with long epilogues stay separate. The results get the same memory order, because one kernel
// vectorises along one dim of both. Nests of tiled groups and chains are not merged: keeping their
// intermediates in cache is worth more. Winograd convolutions share a transform instead (winograd.h).
#pragma once

#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/fusion.h"

namespace stridec::schedule {

// Runs after layouts, tile-and-fuse and chains.
void merge_gemms(loop::Program& program, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
