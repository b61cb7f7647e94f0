// Symbols for long sizes.
//
// A size that an operator computes from another one may repeat it: h + h//2, min(h, 9) - min(h, 1). In a
// chain of such operators each doubles the length of the size, and with it the text of shapes, indices and
// guards and the time of proofs. A size longer than a bound therefore becomes a symbol, which the run binds
// first.
#pragma once

#include <functional>
#include <string>

#include "compiler/graph/graph.h"

namespace stridec::graph {

// Makes a symbol that the run binds, in [lower, upper].
using MakeSymbol = std::function<sym::Expr(sym::Expr lower, sym::Expr upper)>;

// The size, or a symbol with its value if it is long: equal sizes of a graph have one symbol. Sizes that
// depend on data stay as they are (ops/name_size.h names those). `origin`: of the node that has the size.
sym::Expr short_size(Graph& graph, sym::Expr size, const std::string& origin, const MakeSymbol& make);

// Whether the symbol names a long size. Its value depends on the sizes of the graph's inputs alone, also
// where an operator in a region has introduced it.
bool is_size_name(const Graph& graph, sym::Expr symbol);

}  // namespace stridec::graph
