// Attention on a GPU: grouped-query heads become GEMM rows, and GEMM-softmax-GEMM becomes one kernel (kernels/flash.h).
#pragma once

#include <vector>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"
#include "compiler/schedule/analysis/decision.h"

namespace stridec::schedule {

// Heads that share keys, `%i // 4` in one factor of a product of one row a head, become a dim of heads and one of those
// that share: the rows of a chain.
void group_query_heads(loop::Program& program);

// Makes chains of the nests that the target's attention kernels take where that pays; others stay as they are.
void chain_gpu(loop::Program& program, const GpuTarget& target, std::vector<Decision>* decisions = nullptr);

}  // namespace stridec::schedule
