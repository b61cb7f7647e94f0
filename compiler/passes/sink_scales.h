// Moves scalar factors from the inputs of a GEMM or convolution to its output.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

//   linear(x * s, y * t)  ->  linear(x, y) * (s * t)
//
// linear: conv, conv_transpose, dot_general. s and t are scalars that multiply, divide or negate values with
// no other reader; views may be in between. The scales of attention's queries and keys become one factor of
// the scores, which softmax applies at no cost. If the weights are constant, fold_affine then folds the
// factor into them.
//
// Narrow floats with an f32 accumulator are scaled before the sum is rounded. Other narrow sums could
// overflow before they are scaled down, so they stay.
void sink_scales(graph::Graph& graph);

}  // namespace stridec::passes
