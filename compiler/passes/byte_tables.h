// Functions of one byte are tables of 256 numbers, which the compiler fills:
//
//   quantize(gelu(dequantize(q)))  =  gather(table, q)
//
// Whatever chain of pointwise operators leads from one tensor of bytes, with numbers that are the same for all
// elements, to another: activations of quantised networks with all that is rounded on the way, computed exactly as
// written. Chains that cost less than a look-up stay.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

void make_byte_tables(graph::Graph& graph);

}  // namespace stridec::passes
