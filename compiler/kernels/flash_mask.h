// What attention's scores say about the keys that a row sees.
#pragma once

#include "compiler/kernels/flash.h"

namespace stridec::kernels {

// Sets scale, visible, shown, skips and given of an attention whose scores and rows are known. `assumes`: of
// match_attention().
void find_mask(const loop::Program& program, Flash& flash, bool assumes);

}  // namespace stridec::kernels
