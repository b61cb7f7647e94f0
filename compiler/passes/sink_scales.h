// Numbers that the inputs of a product are multiplied by go behind it.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

//   linear(x * s, y * t)  ->  linear(x, y) * (s * t)
//
// linear: conv, conv_transpose, dot_general. s and t are numbers, by multiplication, division or negation, of values
// that nothing else reads, with any views between them and the product. What attention scales its queries and keys by
// becomes one factor of the scores, which softmax has for nothing; behind constant weights fold_affine takes it.
//
// Narrow floats whose sum is f32 are scaled before it is rounded; other narrow sums might leave their range before they are
// scaled down, and stay.
void sink_scales(graph::Graph& graph);

}  // namespace stridec::passes
