// Layouts: in which order the dims of a scratch buffer lie in memory.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Chooses the innermost dim of every arena buffer by the nests that touch it and sets its strides.
//
// A contraction with a constant operand wants its reduced dim innermost in what it reads and the constant's
// own dim innermost in what it writes, so that its vectors run along channels: convolutional nets become
// channels-last. Other nests pass the wish of one buffer on to the next along the index variable that both
// share. The caller's tensors keep the order the caller knows; buffers without a wish stay row-major.
void choose_layouts(loop::Program& program);

}  // namespace stridec::schedule
