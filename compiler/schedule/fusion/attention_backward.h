// Attention's backward pass as one kernel (kernels/flash_backward.h).
//
//   s = q k^T; p = softmax(s); o = p v         the forward pass
//   dv = p^T do                                p is read again, so that it stays in memory, and the forward
//   dp = do v^T                                pass cannot be one kernel
//   ds = p * (dp - sum(p * dp)) * scale
//   dq = ds k; dk = ds^T q
//
// The rule stores the log-sum-exp of each row of s instead of p, and computes p again from it. The row's sum
// of p * dp is the sum of o * do (Dao et al., "FlashAttention", section 3.1), which needs no row of scores.
// Then nothing but the forward pass's second contraction reads p, and chain_gpu() makes one kernel of it.
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Where the target has a kernel for both passes. Runs before chain_gpu().
void fuse_attention_backward(loop::Program& program, const GpuTarget& target,
                             std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
