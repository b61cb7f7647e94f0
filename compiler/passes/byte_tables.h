// Replaces elementwise functions of one byte by tables of 256 values, which the compiler computes:
//
//   quantize(gelu(dequantize(q)))  =  gather(table, q)
//
// Applies to any chain of pointwise operators from one byte tensor to another whose other operands are
// scalars. Examples are activations of quantised networks. Every rounding step is included, so the result is
// exact. Chains that cost less than a table lookup stay.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

void make_byte_tables(graph::Graph& graph);

}  // namespace stridec::passes
