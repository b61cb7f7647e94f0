// Matches GEMMs with a row-wise prologue, such as a normalisation before a projection:
//
//   nest (%m, %n)
//     %0 = reduce sum (%j) x[%m, %j]^2                  one or more statistics of the row
//     %1 = rsqrt (%0 / K + e)
//     for (%k) store t[%m, %k] (x[%m, %k] * %1)         t: local
//     %2 = reduce sum (%k) t[%m, %k] * w[%k, %n]
//     store y[%m, %n] f(%2)
//
// A thread block computes the rows of its tile once, in shared memory, and multiplies them from there. This
// pays for few rows, which every block can afford to read.
#pragma once

#include <optional>

#include "compiler/kernels/cuda_matrix.h"
#include "compiler/loop/program.h"

namespace stridec::kernels {

struct NormPrologue {
  // Over the dims of the GEMM that the prologue depends on; its last statement is the loop over the row.
  loop::Nest rows;
  loop::Nest product;  // loads the row as if it were in memory
  loop::BufferId row;  // t
  const loop::For& made() const { return std::get<loop::For>(rows.body.back().node); }
};

// The loop that computes the rows of a nest over rows, after at least one statistic of each row; null if the
// nest has another form.
const loop::For* prologue_loop(const loop::Nest& nest);

// Returns nothing if the nest is not of this form.
std::optional<NormPrologue> match_row_prologue(const loop::Nest& nest);
// The GEMM, or the nest itself if it has no such prologue.
loop::Nest without_prologue(const loop::Nest& nest);

// Whether the kernel keeps the columns' factor in shared memory. These kernels leave a multiprocessor room
// for a second block, which loads weights while this one computes rows. With the deeper rings of one-block
// kernels the prologue was measured to cost as much as a separate kernel.
bool holds_columns(const MatrixKernel& kernel);
// A thread holds its elements of the rows in registers as vectors, up to a limit. prologue_rows(): the rows
// of this depth that a block has room for, a power of two or 0. prologue_vectors(): the vectors per thread
// for them.
constexpr int kPrologueVector = 8;
int prologue_rows(const MatrixKernel& kernel, int64_t depth);
int prologue_vectors(const MatrixKernel& kernel, int64_t depth);
// Returns the kernel with all of a block's steps of the columns' factor next to the ring, and with as many
// ring stages as still fit. Nothing if too few stages fit.
std::optional<MatrixKernel> holding_columns(const MatrixKernel& kernel, int64_t depth, int64_t split,
                                            const GpuTarget& target);

}  // namespace stridec::kernels
