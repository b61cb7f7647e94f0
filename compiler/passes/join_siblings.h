// Merges GEMMs that multiply one value by several constant matrices into one GEMM.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

//   x * w0 + b0, x * w1 + b1, ...  ->  parts of x * [w0 w1 ...] + [b0 b1 ...]
//
// Example: the query, key and value projections of attention. The merged GEMM reads x once and has the
// columns of all of them; its parts are views. Applies to dot_general without batch dims; the constants are
// concatenated at compile time. A GEMM whose result is used by arithmetic of the same shape stays separate,
// because that arithmetic is its epilogue.
void join_siblings(graph::Graph& graph);

}  // namespace stridec::passes
