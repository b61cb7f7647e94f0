// Analytical cost model of a contraction's tiles on a GPU multiprocessor.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/cuda_matrix.h"

namespace stridec::schedule {

struct GemmShape {
  double batch, rows, columns, depth;
  bool operator==(const GemmShape&) const = default;
};

// How a factor's lines reach shared memory: as a matrix, as image windows that the copy engine walks, or
// gathered one element at a time by threads.
enum class Lines { kMatrix, kWindows, kGathered };

// Cycles to move a sum from registers to where the epilogue stores it, with epilogue statements of this cost
// (relative to an add). The sum goes through shared memory or, with `in_registers`, is finished where it was
// computed (kernels/group_results.h).
double element_cycles(bool in_registers, double statements);
// Total cycles. `element`: cycles of a sum from registers to the epilogue's store. `weights`: one factor is a
// weight, so the ring's stages of it are loaded while the previous launch finishes.
double cycles(const kernels::MatrixPlan& plan, Lines rows, Lines columns, const GemmShape& s, double element,
              bool weights, const GpuTarget& target);
// Cycles a block needs to compute the rows of its tile of columns before it multiplies
// (kernels/norm_prologue.h). `cost`: of the statements that compute one element.
double row_cycles(const kernels::MatrixKernel& kernel, const GemmShape& shape, double cost);
// Cycles of a separate kernel for these rows, including its launch.
double row_kernel_cycles(double rows, double elements, const GpuTarget& target);
// Cycles that memory takes to read or write this many bytes.
double memory_cycles(double bytes, const GpuTarget& target);

}  // namespace stridec::schedule
