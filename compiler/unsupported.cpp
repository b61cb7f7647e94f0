#include "compiler/unsupported.h"

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/walk.h"
#include "compiler/ops/op_table.h"

namespace stridec {

std::vector<Diagnostic> unsupported_steps(const loop::Program& program, const Targets& targets) {
  std::vector<Diagnostic> problems;
  if (targets.gpus.empty()) return problems;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* call = std::get_if<loop::Call>(&step.node);
    if (!call || codegen::cuda::has_routine(call->routine)) return;
    problems.push_back({.kind = ErrorKind::kUnsupported,
                        .code = "not-on-gpu",
                        .message = cat("routine '", call->routine, "' does not run on GPUs"),
                        .where = {.node = join(call->nodes, ", ")},
                        .help = "compile for the CPU, --target cpu, or cut the model there"});
  });
  return problems;
}

std::vector<Diagnostic> unsupported_steps(const graph::Graph& graph, const Targets& targets) {
  if (targets.gpus.empty()) return {};
  graph::Graph needed = graph;
  graph::eliminate_dead_code(needed);
  return unsupported_steps(ops::lower(needed), targets);
}

}  // namespace stridec
