// Chooses the memory order of the dims of each scratch buffer.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// Chooses the innermost dim of every arena buffer from the nests that touch it and sets its strides.
//
// A contraction with a weight prefers its reduced dim innermost in its input and in the weight, and the
// weight's own dim innermost in its output, so that its vectors run along channels: convolutional nets become
// channels-last. Weights are parameters, states that are trained, and what is computed from these alone.
// Other nests propagate the preference of one buffer to the next along a shared index
// variable. The caller's tensors keep their order; buffers without a preference stay row-major.
void choose_layouts(loop::Program& program);

}  // namespace stridec::schedule
