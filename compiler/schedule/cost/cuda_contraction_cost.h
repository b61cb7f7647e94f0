// What a tile of a contraction takes on a GPU, by an analytical model of a multiprocessor.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/kernels/cuda_matrix.h"

namespace stridec::schedule {

struct ProductShape {
  double batch, rows, columns, depth;
  bool operator==(const ProductShape&) const = default;
};

// How the elements of a factor's lines come: as a matrix, as windows of images that the copy engine walks, or one by one,
// gathered by threads.
enum class Lines { kMatrix, kWindows, kGathered };

// Cycles of a sum on its way from registers to where the epilogue stores it, with statements behind it of this cost (relative
// to an add): through shared memory, or computed where the sum is (kernels/group_results.h).
double element_cycles(bool in_registers, double statements);
// Cycles. `element`: of a sum, from registers to where the epilogue stores it. `weights`: one of the factors; what a ring
// holds of it comes while the launch before ends.
double cycles(const kernels::MatrixPlan& plan, Lines rows, Lines columns, const ProductShape& s,
              double element, bool weights, const GpuTarget& target);
// What a block needs to make the rows of its tile of columns before it multiplies (kernels/norm_prologue.h); `cost`: of an
// element, of the statements that make it.
double row_cycles(const kernels::MatrixKernel& kernel, const ProductShape& shape, double cost);
// A kernel of its own for these rows instead, from launch to launch.
double row_kernel_cycles(double rows, double elements, const GpuTarget& target);
// What memory takes to bring or to take so many bytes.
double memory_cycles(double bytes, const GpuTarget& target);

}  // namespace stridec::schedule
