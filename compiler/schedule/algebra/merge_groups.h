// Merges the groups of a grouped convolution with few channels per group into fewer, larger groups.
//
//   reduce (%c<4, %r<3, %s<3)                    32 groups %g, columns %n<4
//     x[%b, 4*%g + %c, ...] * weight[%g, %n, %c, %r, %s]
//   ->
//   reduce (%c<64, %r<3, %s<3)                   2 groups %g, columns %n<64
//     x[%b, 64*%g + %c, ...] * wide[%g, %n, %c, %r, %s]
//
// The wide weight is zero where a channel and a column belong to different groups. Tensor cores multiply a
// tile of 64 columns in no more time than a tile of 8, and the data becomes contiguous: 16 times the
// multiplications, at a hundred times the rate that loops over 4 channels reach. Sums differ only by added
// zeros.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void merge_groups(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
