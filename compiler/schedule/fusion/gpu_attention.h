// Attention on a GPU: grouped-query heads become GEMM rows, and GEMM-softmax-GEMM becomes one kernel
// (kernels/flash.h).
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Query heads that share keys (`%i // 4` in one factor of a GEMV per head) are split into a dim of key heads
// and a dim of the query heads that share one. The latter become the rows of a chain.
void group_query_heads(loop::Program& program);

// Makes chains of the nests that the target's attention kernels support where that pays; the others are
// unchanged.
void chain_gpu(loop::Program& program, const GpuTarget& target, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
