// The operations of the graph that rules and formulas are written with, and their attributes
// (graph/op_kind.def describes them).
#pragma once

#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::extend {

// By name. Those of reductions include `keep`, which rules and formulas give and the graph does not have.
std::vector<std::string_view> attributes_of(graph::OpKind kind);

// Whether rules and formulas may have the operation: it has neither an effect, nor a body, nor data of its
// own.
bool can_be_written(graph::OpKind kind);
// All operations that can, in the order of op_kind.def.
std::vector<graph::OpKind> written_operations();

}  // namespace stridec::extend
