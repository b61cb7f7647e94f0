// Weights that a loop reads through a conversion, such as 8-bit weights of a recurrent layer with a scale.
#pragma once

#include "compiler/loop/program.h"

namespace stridec::schedule {

//   for i, j: t[i, j] = w[i, j] * s           while ...
//   while ...                                   for i, j: t[i, j] = w[i, j] * s
//     y = x * t                          ->      y = x * t
//
// Moves nests that convert weights, element by element, in front of the only contraction that reads the
// result, if that is in a loop: fusion then makes them part of the contraction, which reads the weights as
// they are stored. fold_constants has computed the small results already. Returns whether
// it moved any.
bool sink_weights(loop::Program& program);

// Moves those that fusion has left alone out of the loop again.
void lift_weights(loop::Program& program);

}  // namespace stridec::schedule
