// Split-K without clusters: each block stores its sums to memory, and the last block of a tile to finish adds
// them all, in block order, whichever block it is.
#pragma once

#include <string>

#include "compiler/codegen/cuda/matrix/matrix_frame.h"

namespace stridec::codegen::cuda {

// Whether the blocks of a tile exchange their sums in a cluster.
bool has_cluster(const MatrixFrame& frame, const GpuTarget& target);

// Follows a barrier. All but the last of the blocks that share tile `block` return; that one has the total in
// `sums`, lines of columns + kSumPadding elements, after a barrier.
void print_parts(MatrixFrame& frame);
// Workspace bytes for this number of tiles.
sym::Expr part_bytes(const MatrixFrame& frame, sym::Expr tiles);

}  // namespace stridec::codegen::cuda
