// Passes of users inside of the compiler: a shared library with the C interface of
// runtime/include/stridec/plugin.h.
#pragma once

#include "compiler/extend/extensions.h"
#include "compiler/graph/graph.h"

namespace stridec::extend {

// Throws Error: kUnreadable where the library cannot be loaded, kToolchain where its pass fails, kMalformed
// where the graph that it leaves cannot be used.
graph::Graph run_plugin(const graph::Graph& graph, const UserPass& pass);

}  // namespace stridec::extend
