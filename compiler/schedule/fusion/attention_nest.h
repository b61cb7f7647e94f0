// Builds attention's backward pass from what attention_passes.h finds.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/schedule/fusion/attention_passes.h"

namespace stridec::schedule {

// Both functions add nests to `into`, a copy of `program` with the buffers of `statistics`, and return their
// ids in order. The statements after the sums of dq, dk and dv are those of `steps`. Nothing if one of them
// is not pointwise.

// One nest, for kernels/flash_backward.h.
std::optional<std::vector<loop::NestId>> add_backward_nest(loop::Program& into, const loop::Program& program,
                                                           const loop::Steps& steps,
                                                           const ForwardPass& forward,
                                                           const BackwardPass& backward,
                                                           const RowStatistics& statistics);

// Two chains (kernels/chain.h). One has the rows of q, and sums over the keys; the other has the keys, and
// sums over the rows. Each computes the scores for itself, so that all sums are of one thread:
//
//   for m:  s[n] = q k; dp[n] = do v; D = sum of do o; ds[n] = exp(s - M - S) (dp - D);
//           dq = ds k
//   for n:  s[m] = k q; dp[m] = v do; p[m] = exp(s - M[m] - S[m]); ds[m] = p (dp - D[m]);
//           dv = p do; dk = ds q
std::optional<std::vector<loop::NestId>> add_backward_chains(
    loop::Program& into, const loop::Program& program, const loop::Steps& steps, const ForwardPass& forward,
    const BackwardPass& backward, const RowStatistics& statistics);

// The same, with D computed by a nest of its own before the chains, which then combine nothing but columns
// (kernels/streamed_chain.h).
std::optional<std::vector<loop::NestId>> add_streamed_backward_chains(
    loop::Program& into, const loop::Program& program, const loop::Steps& steps, const ForwardPass& forward,
    const BackwardPass& backward, const RowStatistics& statistics);

}  // namespace stridec::schedule
