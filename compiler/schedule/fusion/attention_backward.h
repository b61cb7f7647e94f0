// Attention's backward pass without scores in memory.
//
//   s = q k^T; p = softmax(s); o = p v         the forward pass
//   dv = p^T do                                p is read again, so that it stays in memory, and the forward
//   dp = do v^T                                pass cannot be one kernel
//   ds = p * (dp - sum(p * dp)) * scale
//   dq = ds k; dk = ds^T q
//
// The rule stores the log-sum-exp of each row of s instead of p, and computes p again from it. The row's sum
// of p * dp is the sum of o * do (Dao et al., "FlashAttention", section 3.1), which needs no row of scores.
// Then nothing but the forward pass's second contraction reads p, and chain() or chain_gpu() makes one
// kernel of it.
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// On a GPU: one kernel where the target has one that fits (kernels/flash_backward.h); otherwise two that
// stream over keys and over rows (kernels/streamed_chain.h), at two more products, with any mask. Runs before
// chain_gpu().
void fuse_attention_backward(loop::Program& program, const GpuTarget& target,
                             std::vector<Decision>* decisions = nullptr);
// On a CPU: two chains (add_backward_chains() in attention_nest.h). They add two products to five; with a
// causal mask they skip hidden keys, and otherwise pay if the probabilities have `large` bytes. Runs before
// chain().
void chain_attention_backward(loop::Program& program, std::vector<Decision>* decisions = nullptr,
                              double large = 64 << 20);

}  // namespace stridec::schedule
