// Folds per-channel arithmetic after a linear operator into its constant weights and one bias.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

//   (linear(x, w) + b) * s + t  ->  linear(x, w * s) + (b * s + t)
//
// linear: conv, conv_transpose, or dot_general with constant weights. b, s and t are constants that vary only
// along dims of the weights: batch normalisation at inference, and any other scaling or shifting of channels
// (+ - * / by constants, negation), in any order and number. The new constants are ordinary nodes, evaluated
// at compile time like every node on constants.
//
// Only for f32 and f64: narrower weights would be rounded a second time.
void fold_affine(graph::Graph& graph);

}  // namespace stridec::passes
