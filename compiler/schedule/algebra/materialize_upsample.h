// Materialises the upsampled input of a convolution, so that the convolution reads plain windows.
//
//   reduce (%c, %r<3, %s<3)                                    inside of [0, 2*h), [0, 2*w)
//     x[%b, %c, (%y + %r - 1)//2, (%x + %s - 1)//2] * weight[...]
//   ->
//   wide[%b, %c, %u, %v] = x[%b, %c, %u//2, %v//2]
//   reduce (%c, %r<3, %s<3)  wide[%b, %c, %y + %r - 1, %x + %s - 1] * weight[...]
//
// Copy engines (TMA) cannot fetch windows through a nearest-neighbour resize or through an index that repeats
// or mirrors. Gathering such tiles element by element takes ten times as long as the copy. Applies to GEMMs
// on tensor cores with many columns.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void materialize_upsamples(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
