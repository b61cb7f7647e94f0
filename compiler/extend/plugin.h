// Runs a user's pass inside the compiler's process: a shared library with the C interface of
// runtime/include/stridec/plugin.h.
#pragma once

#include "compiler/extend/extensions.h"
#include "compiler/graph/graph.h"

namespace stridec::extend {

// Throws Error: kUnreadable if the library cannot be loaded, kToolchain if its pass fails, kMalformed if the
// graph that it returns is invalid.
graph::Graph run_plugin(const graph::Graph& graph, const UserPass& pass);

}  // namespace stridec::extend
