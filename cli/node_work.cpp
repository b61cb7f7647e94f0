#include "cli/node_work.h"

#include <map>

#include "cli/output.h"
#include "compiler/base/text.h"
#include "compiler/schedule/analysis/node_work.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using schedule::RepeatedNode;

std::vector<RepeatedNode> repeated(const FunctionResult& made, const std::vector<loop::Kernel>& kernels) {
  return schedule::repeated_nodes(made.loops, *made.programs().front(), kernels);
}

// Kernels of one name are listed once, with all their steps.
std::vector<std::pair<std::string, std::vector<int>>> by_name(const RepeatedNode& node) {
  std::vector<std::pair<std::string, std::vector<int>>> rows;
  std::map<std::string, size_t> known;
  for (const loop::Kernel* kernel : node.kernels) {
    const auto [found, fresh] = known.emplace(kernel->name, rows.size());
    if (fresh) rows.push_back({kernel->name, {}});
    rows[found->second].second.push_back(kernel->step);
  }
  return rows;
}

}  // namespace

Json work_json(const loop::Program& program, const loop::Kernel& kernel) {
  Json all = Json::array();
  for (const schedule::NodeWork& work : schedule::work_of(program, kernel))
    all.push_back({{"node", work.node},
                   {"statements", Json(work.statements)},
                   {"typical_operations", work.operations}});
  return all;
}

Json repeated_json(const FunctionResult& made, const std::vector<loop::Kernel>& kernels) {
  Json all = Json::array();
  for (const RepeatedNode& node : repeated(made, kernels)) {
    Json row = {{"node", node.node},
                {"times", node.times},
                {"more_operations", node.operations},
                {"kernels", Json::array()}};
    for (const auto& [name, steps] : by_name(node))
      row["kernels"].push_back({{"name", name}, {"steps", steps}});
    all.push_back(std::move(row));
  }
  return all;
}

std::string repeated_text(const FunctionResult& made, const std::vector<loop::Kernel>& kernels) {
  std::string text;
  for (const RepeatedNode& node : repeated(made, kernels))
    text +=
        cat(" repeated  ", node.node, ": ", formatted(node.times, "%.3g"),
            " times as often as in the model, ", formatted(node.operations, "%.3g"), " operations more, in ",
            join(by_name(node), ", ",
                 [](const auto& kernel) {
                   return cat(kernel.first, kernel.second.size() == 1 ? " (step " : " (steps ",
                              join(kernel.second, ", ", [](int step) { return std::to_string(step); }), ")");
                 }),
            "\n");
  return text;
}

}  // namespace stridec::cli
