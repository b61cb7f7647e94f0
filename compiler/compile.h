// The whole compiler as one function; compile.cpp is the first file to read.
#pragma once

#include "compiler/compilation.h"

namespace stridec {

// Compiles up to and including `last`. Throws Error.
Compilation compile(const CompileOptions& options, Stage last = Stage::kArtifact);
// The same for a graph in memory. The model file of the options is only named in messages, and hashed for an
// artifact. `nodes`: the model's; empty: those that the graph names.
Compilation compile(graph::Graph graph, const CompileOptions& options, Stage last = Stage::kArtifact,
                    std::vector<graph::ModelNode> nodes = {});

}  // namespace stridec
