// Replaces sums of padded pieces by concatenations.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

//   pad(a, after=[2]) + pad(b, before=[3])  ->  concat(a, b)        a has 3 elements, b has 2
//
// The gradient of a tensor that is split into parts is such a sum, in any order. The pieces are padded with
// zeros along one dim, do not overlap and leave no gap; no other node reads the padded pieces and the sums of
// some of them. The parts of a concatenation can then be computed in place, where a sum reads all of them.
// The sign of a zero may change: 0 + -0 is 0.
void concat_pads(graph::Graph& graph);

}  // namespace stridec::passes
