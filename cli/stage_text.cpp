#include "cli/stage_text.h"

#include "cli/inspect_schedule.h"
#include "cli/memory_stage.h"
#include "cli/model_summary.h"
#include "cli/node_fates.h"
#include "cli/rewrites_report.h"
#include "compiler/base/counted.h"
#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/graph/text.h"
#include "compiler/loop/origin.h"
#include "compiler/loop/text.h"
#include "compiler/own_kernels.h"
#include "compiler/sym/text.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;

// Resource use of a GPU kernel, from its cubin and its launch.
std::string resources_text(const codegen::cuda::BuiltKernel& kernel) {
  const codegen::cuda::Resources& r = kernel.resources;
  if (!r.registers) return cat("// ", kernel.target.name, "\n");
  const auto dynamic = sym::as_const(kernel.dynamic_shared);
  std::string out = cat("// ", kernel.target.name, ": ", r.registers, " registers, ", r.shared_bytes,
                        dynamic == 0 ? std::string() : cat(" + ", sym::to_string(kernel.dynamic_shared)),
                        " bytes of shared memory, ", r.stack_bytes, " of stack",
                        r.stack_loads + r.stack_stores == 0
                            ? std::string()
                            : cat(" (", r.stack_loads, " loads, ", r.stack_stores, " stores)"),
                        ", ", r.code_bytes, " of code; ", kernel.threads, " threads");
  const int blocks = resident_blocks(r, kernel.threads, static_cast<int>(dynamic.value_or(0)), kernel.target);
  return cat(out, dynamic ? ", " : ", at most ", counted(blocks, "block"), " a multiprocessor, ",
             100 * blocks * kernel.threads / kernel.target.threads_sm, " % of its threads\n");
}

std::string source_text(const Compilation& made, int chosen) {
  std::string text;
  int number = 0;
  for (const auto& kernel : made.device.kernels)
    if (++number == chosen || chosen == 0)
      text += cat("// ---- ", number, ": ", join(kernel.nests, ", "), "\n", resources_text(kernel),
                  kernel.text, "\n");
  for (const auto& kernel : made.built.kernels)
    if (++number == chosen || chosen == 0)
      text += cat("// ---- ", number, ": ", join(kernel.nests, ", "), "\n", kernel.text, "\n");
  if (chosen > number)
    fail(ErrorKind::kUsage, "no-such-kernel", cat("there is no kernel ", chosen, "; there are ", number));
  return text;
}

Json json_of(const FunctionResult& made, const StageView& view) {
  const std::string& stage = view.stage;
  if (stage.empty())
    return {{"stage", "graph"},
            {"model", to_json(summarize(made.graph, made.facts, true))},
            {"text", graph::to_string(made.graph)}};
  if (stage == "memory") return memory_json(*made.programs().front(), view.threads);
  if (stage == "schedule") return schedule_json(made);
  if (stage == "nodes") return nodes_json(nodes_of(made));
  if (stage == "rewrites") return rewrites_json(made.rules);
  if (stage == "kernels") return own_kernels_json(made.kernels);
  return {{"stage", stage}, {"text", stage_text(made, view)}};
}

}  // namespace

bool is_whole(const std::string& stage) { return stage == "manifest" || stage == "source"; }

std::string stage_text(const FunctionResult& made, const StageView& view) {
  const std::string& stage = view.stage;
  if (stage.empty())
    return cat(made.source.model, "  ", made.summary, "\n", to_text(summarize(made.graph, made.facts, true)),
               "\n", graph::to_string(made.graph));
  if (stage == "graph") return graph::to_string(made.graph);
  if (stage == "loops") return loop::to_string(made.loops);
  if (stage == "schedule") return schedule_text(made);
  if (stage == "memory") return memory_text(*made.programs().front(), view.threads);
  if (stage == "nodes") return nodes_text(nodes_of(made));
  if (stage == "rewrites") return rewrites_text(made.rules);
  if (stage == "kernels") return own_kernels_text(made.kernels);
  return loop::to_string_with_origins(*made.programs().front());
}

std::string stage_text(const Compilation& made, const StageView& view) {
  if (view.stage == "manifest") return made.artifact.manifest;
  if (view.stage == "source") return source_text(made, view.kernel);
  std::string text;
  for (const FunctionResult& function : made.functions)
    text += cat(made.functions.size() > 1 ? cat("// ==== ", function.name(), "\n") : "",
                stage_text(function, view));
  return text;
}

Json stage_json(const Compilation& made, const StageView& view) {
  if (is_whole(view.stage)) return {{"stage", view.stage}, {"text", stage_text(made, view)}};
  const bool several = made.functions.size() > 1;
  Json all = Json::array();
  for (const FunctionResult& function : made.functions) {
    all.push_back(json_of(function, view));
    if (several) all.back()["function"] = function.name();
  }
  if (!several) return all.front();
  return {{"stage", view.stage.empty() ? "graph" : view.stage}, {"functions", all}};
}

}  // namespace stridec::cli
