// Convolutions of an image that is spread out read it spread out.
//
//   reduce (%c, %r<3, %s<3)  x[%b, %c, (%y + %r - 1)//2, (%x + %s - 1)//2] * weight[...]   inside of [0, 2*h), [0, 2*w)
//   ->  wide[%b, %c, %u, %v] = x[%b, %c, %u//2, %v//2], reduce (...)  wide[%b, %c, %y + %r - 1, %x + %s - 1] * weight[...]
//
// What a resize to the nearest neighbours, or an index that repeats or mirrors, makes of windows cannot be fetched by copy
// engines, and gathering tiles of it element by element takes ten times as long as the copy does. Of products on tensor
// cores with many columns.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

void materialize_upsamples(loop::Program& program, const GpuTarget& target);

}  // namespace stridec::schedule
