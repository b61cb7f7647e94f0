// Finds out which keys an attention's index mask leaves visible to a row.
#pragma once

#include "compiler/kernels/flash.h"

namespace stridec::kernels {

// Sets scale, visible, lengths, shown, skips, given, asks and others of an attention whose scores and rows
// are known. `assumes`: as for match_attention().
void find_mask(const loop::Program& program, Flash& flash, bool assumes);

}  // namespace stridec::kernels
