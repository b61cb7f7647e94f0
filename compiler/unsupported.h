// What a model needs that the targets have not, found before anything is scheduled or built.
#pragma once

#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/program.h"
#include "compiler/select_targets.h"

namespace stridec {

// One Diagnostic for each step that a target cannot run, with the model's node.
std::vector<Diagnostic> unsupported_steps(const loop::Program& program, const Targets& targets);
// The same for an imported graph that is whole, which is lowered for it where a target may refuse something.
std::vector<Diagnostic> unsupported_steps(const graph::Graph& graph, const Targets& targets);

}  // namespace stridec
