// A matrix product whose rows are made from whole rows of something else, as a norm in front of a projection makes them:
//
//   nest (%m, %n)
//     %0 = reduce sum (%j) x[%m, %j]^2                  statistics of the row, one after the other
//     %1 = rsqrt (%0 / K + e)
//     for (%k) store t[%m, %k] (x[%m, %k] * %1)         t: local
//     %2 = reduce sum (%k) t[%m, %k] * w[%k, %n]
//     store y[%m, %n] f(%2)
//
// A block of the GPU makes the rows of its tile once, in shared memory, and multiplies them out of it: of few rows, which
// every block can afford to read.
#pragma once

#include <optional>

#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/program.h"

namespace stridec::kernels {

struct RowPrologue {
  loop::Nest
      rows;  // over the dims of the product that it depends on; its last statement is the loop over the row
  loop::Nest product;  // which loads the row as if it lay in memory
  loop::BufferId row;  // t
  const loop::For& made() const { return std::get<loop::For>(rows.body.back().node); }
};

// The loop that makes the rows of a nest over rows, behind at least one statistic of each; null where it is no such nest.
const loop::For* row_loop(const loop::Nest& nest);

// Nothing where the nest is not of this form.
std::optional<RowPrologue> match_row_prologue(const loop::Nest& nest);
// The product, or the nest as it is.
loop::Nest without_prologue(const loop::Nest& nest);

// The kernels that hold the columns' factor: those that leave a multiprocessor room for another block, which loads weights
// while this one makes rows. With the deeper rings of single blocks rows were seen to cost what a kernel of theirs does.
bool holds_columns(const MatrixKernel& kernel);
// A thread holds its elements of a row in registers, so many vectors of these at most: of how many rows of this depth a block
// of the kernel has room for, a power of two or 0, and for how many vectors of a thread that is.
constexpr int kPrologueVector = 8;
int prologue_rows(const MatrixKernel& kernel, int64_t depth);
int prologue_vectors(const MatrixKernel& kernel, int64_t depth);
// The kernel with so many steps of the columns' factor beside the ring, for all steps of a block, and as many stages as there
// is room for. Nothing where too few are left.
std::optional<MatrixKernel> holding_columns(const MatrixKernel& kernel, int64_t depth, int64_t split,
                                            const GpuTarget& target);

}  // namespace stridec::kernels
