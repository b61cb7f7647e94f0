// Weights of contractions in the order in which the micro-kernels read them.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// For every launched nest whose schedule says `b weights P`: a weight [batch dims of b][panels][k dims][P]
// that a nest of Program::prepack fills (zeros behind the last column), read by the contraction instead of
// the factor it was made from. Contractions that want the same panels of the same weight share them.
void pack_weights(loop::Program& program);

}  // namespace stridec::schedule
