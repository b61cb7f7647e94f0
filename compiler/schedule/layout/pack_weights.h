// Packs the weights of contractions into the order in which the micro-kernels read them.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

// For every launched nest whose schedule says `b weights P`: adds a weight
// [batch dims of b][panels][k dims][P] that a nest of Program::prepack fills (zeros after the last column).
// The contraction reads it in place of the original factor. Contractions that want the same panels of the
// same weight share them.
void pack_weights(loop::Program& program);

}  // namespace stridec::schedule
