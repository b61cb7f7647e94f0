// Convolutions of many groups of few channels become convolutions of fewer groups of more.
//
//   reduce (%c<4, %r<3, %s<3)  x[%b, 4*%g + %c, ...] * weight[%g, %n, %c, %r, %s]      of 32 groups %g, columns %n<4
//   ->  reduce (%c<64, %r<3, %s<3)  x[%b, 64*%g + %c, ...] * wide[%g, %n, %c, %r, %s]  of 2 groups %g, columns %n<64
//
// The wide weight has zeros where a channel and a column are of different groups. Tensor cores multiply tiles of 64
// columns in no more time than tiles of 8, and what is read lies side by side then: 16 times the multiplications at a
// hundred times the rate of what loops over 4 channels reach. Sums are the same but for additions of zeros.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void merge_groups(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
