// Blocks that share the depth of a tile where no cluster joins them: each leaves its sums in memory, and the last one to
// come adds all of them up, in the order of the blocks, whichever of them it is.
#pragma once

#include <string>

#include "compiler/codegen/cuda/matrix/matrix_frame.h"

namespace stridec::codegen::cuda {

// Whether the blocks of a tile have a cluster for their sums.
bool has_cluster(const MatrixFrame& frame, const GpuTarget& target);

// Behind a barrier: of the blocks that share the tile of number `block`, all but the last return; that one has their sum
// in `sums`, lines of columns + kSumPadding elements, behind a barrier.
void print_parts(MatrixFrame& frame);
// Of `tiles` tiles.
sym::Expr part_bytes(const MatrixFrame& frame, sym::Expr tiles);

}  // namespace stridec::codegen::cuda
