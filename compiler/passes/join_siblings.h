// Products of one value with several constant matrices become one product.
#pragma once

#include "compiler/graph/graph.h"

namespace stridec::passes {

//   x * w0 + b0, x * w1 + b1, ...  ->  parts of x * [w0 w1 ...] + [b0 b1 ...]
//
// What attention calls queries, keys and values: one product reads x once and has as many columns as all of them, and
// its parts are views. dot_general without batch dims; the constants are joined when compiling. A product whose result
// goes into arithmetic on its own shape stays by itself: that arithmetic is its epilogue.
void join_siblings(graph::Graph& graph);

}  // namespace stridec::passes
