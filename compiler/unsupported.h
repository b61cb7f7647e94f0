// Finds what a model needs and the targets lack, before anything is scheduled or built.
#pragma once

#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/program.h"
#include "compiler/select_targets.h"

namespace stridec {

// One Diagnostic with the model's node for each step that a target cannot run.
std::vector<Diagnostic> unsupported_steps(const loop::Program& program, const Targets& targets);
// The same for a complete imported graph. Lowers it only if a target might reject something.
std::vector<Diagnostic> unsupported_steps(const graph::Graph& graph, const Targets& targets);

}  // namespace stridec
