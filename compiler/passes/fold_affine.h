// Per-channel arithmetic behind a linear operator moves into its constant weights and one bias.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

//   (linear(x, w) + b) * s + t  ->  linear(x, w * s) + (b * s + t)
//
// linear: conv, conv_transpose, dot_general with constant weights. b, s and t are constants that vary along
// dims of the weights alone: what is left of batch normalisation in inference, and whatever else scales or
// shifts channels (+ - * / by constants, negation), in any order and number. The new constants are ordinary
// nodes, computed at compile time as every node on constants is.
//
// Only f32 and f64: narrower weights would be rounded a second time.
void fold_affine(graph::Graph& graph);

}  // namespace stridec::passes
