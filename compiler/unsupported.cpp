#include "compiler/unsupported.h"

#include <algorithm>
#include <set>

#include "compiler/base/text.h"
#include "compiler/codegen/cuda/emit.h"
#include "compiler/loop/capacity.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/ops/op_table.h"

namespace stridec {
namespace {

// Names of the nodes that write the buffers.
std::string writers_of(const loop::Program& program, const std::vector<loop::BufferId>& buffers) {
  std::set<std::string> nodes;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* launch = std::get_if<loop::Launch>(&step.node);
    if (!launch) return;
    const loop::Nest& nest = program[launch->nest];
    loop::for_each_stmt(nest.body, [&](const loop::Stmt& stmt) {
      const auto* store = std::get_if<loop::Store>(&stmt.node);
      if (store && std::ranges::count(buffers, store->access.buffer))
        nodes.insert(nest.nodes.begin(), nest.nodes.end());
    });
  });
  return join(std::vector<std::string>(nodes.begin(), nodes.end()), ", ");
}

}  // namespace

std::vector<Diagnostic> unsupported_steps(const loop::Program& program, const Targets& targets) {
  std::vector<Diagnostic> problems;
  if (targets.gpus.empty()) return problems;
  loop::for_each_step(program.steps, [&](const loop::Step& step) {
    const auto* loop = std::get_if<loop::While>(&step.node);
    if (const auto capacity = loop ? loop::capacity_of(program, *loop) : std::nullopt)
      problems.push_back(
          {.kind = ErrorKind::kUnsupported,
           .code = "not-on-gpu",
           .message = "a loop without a bound on its iterations collects rows, which does not run on GPUs",
           .where = {.node = writers_of(program, loop::growing_buffers(program, *capacity))},
           .help = "give the loop a trip count, or compile for the CPU, --target cpu"});
    const auto* call = std::get_if<loop::Call>(&step.node);
    if (!call || codegen::cuda::has_routine(call->routine)) return;
    problems.push_back({.kind = ErrorKind::kUnsupported,
                        .code = "not-on-gpu",
                        .message = cat("routine '", loop::label_of(call->routine), "' does not run on GPUs"),
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
