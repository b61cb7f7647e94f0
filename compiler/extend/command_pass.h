// Passes of users outside of the compiler: a program that reads the graph as text (exchange.h) and writes
// one. STRIDEC_PASS_DIR names a folder in which it finds the contents of constants by name
// (weights/sha256:9f86...) and may leave files.
#pragma once

#include <string>

#include "compiler/extend/extensions.h"
#include "compiler/graph/graph.h"

namespace stridec::extend {

inline constexpr double kPassSeconds = 60;
inline constexpr uint64_t kPassMemory = uint64_t{4} << 30;

// Runs the pass. Throws Error: kToolchain where the command fails, kOverBudget where it takes too long,
// kMalformed where what it writes is not a graph with the same inputs, outputs, states and symbols.
graph::Graph run_pass(const graph::Graph& graph, const UserPass& pass, const Extensions& limits);

}  // namespace stridec::extend
