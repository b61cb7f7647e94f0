#include "cli/node_fates.h"

#include <algorithm>
#include <map>

#include "cli/output.h"
#include "compiler/base/counted.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/loop/kernels.h"
#include "compiler/loop/user_kernel.h"

namespace stridec::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::map<std::string, NodeRow>;

void add_kernel(NodeRow& row, const std::string& name, int step) {
  row.fate = "kernel", row.by = "", row.with = "";
  const auto same = std::ranges::find(row.kernels, name, &NodeRow::Kernel::name);
  NodeRow::Kernel& kernel = same == row.kernels.end() ? row.kernels.emplace_back(name) : *same;
  kernel.steps.push_back(step);
}

// The nodes of each launch of a kernel of the manifest. Manifests before 1.4 do not tell launches apart.
void add_kernel(const Json& kernel, Rows& rows) {
  const Json none = Json::array();
  const auto nodes = kernel["nodes"].get<std::vector<std::string>>();
  const auto launch_nodes = kernel.value("launch_nodes", none);
  const Json& steps = kernel["steps"];
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto add = [&](const std::string& node) {
      add_kernel(rows[node], kernel["name"], steps[i].get<int>());
    };
    if (i >= launch_nodes.size())
      std::ranges::for_each(nodes, add);
    else
      for (const Json& at : launch_nodes[i])
        if (at.get<size_t>() < nodes.size()) add(nodes[at.get<size_t>()]);
  }
}

std::vector<NodeRow> in_order(Rows rows) {
  std::vector<std::string> order;
  for (const auto& [node, row] : rows) order.push_back(node);
  loop::sort_nodes(order);
  std::vector<NodeRow> out;
  for (const std::string& node : order) {
    out.push_back(std::move(rows[node]));
    out.back().node = node;
  }
  return out;
}

std::string kernel_with_steps(const NodeRow::Kernel& kernel) {
  return cat(kernel.name, kernel.steps.size() == 1 ? " (step " : " (steps ",
             join(kernel.steps, ", ", [](int step) { return std::to_string(step); }), ")");
}

std::string fate_without_rules(const NodeRow& row) {
  if (!row.kernels.empty()) return cat(row.fate, " ", join(row.kernels, ", ", kernel_with_steps));
  if (row.fate != "rewritten") return row.fate;
  return row.with.empty() ? cat("rewritten by ", row.by) : cat("rewritten: same as ", row.with);
}

std::string fate_of(const NodeRow& row) {
  const std::string fate = fate_without_rules(row);
  if (row.rules.empty() || row.by.starts_with("rule ")) return fate;
  return cat(fate, "; rewritten by rule ", join(row.rules, ", "));
}

}  // namespace

std::vector<NodeRow> nodes_of(const FunctionResult& made) {
  const loop::Program& program = *made.programs().front();
  std::map<int, std::string> names;
  for (const loop::Kernel& kernel : loop::kernels_of(program)) names[kernel.step] = kernel.name;
  for (const loop::Routine& routine : loop::routines_of(program))
    names[routine.step] = loop::label_of(routine.call->routine);
  std::vector<NodeRow> rows;
  for (const package::NodeFate& fate : made.nodes.fates(program)) {
    NodeRow row{.node = fate.node};
    for (const int step : fate.steps) add_kernel(row, names[step], step);
    row.fate = package::name(fate.kind);
    if (fate.steps.empty()) row.by = fate.by, row.with = fate.with;
    for (const extend::RuleEffect& rule : made.rules)
      if (std::ranges::count(rule.nodes, fate.node) > 0) row.rules.push_back(rule.rule);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<NodeRow> nodes_of(const Json& function) {
  Rows rows;
  for (const Json& kernel : function["kernels"]) add_kernel(kernel, rows);
  const auto listed = function.find("nodes");
  if (listed == function.end()) return in_order(std::move(rows));
  for (const Json& group : (*listed)["without_kernel"])
    for (const Json& node : group["nodes"]) {
      NodeRow& row = rows[node.get<std::string>()];
      row.fate = group["fate"], row.with = group.value("with", "");
      if (group.contains("steps"))
        row.kernels.push_back({group["by"], group["steps"].get<std::vector<int>>()});
      else
        row.by = group["by"];
    }
  if (listed->contains("rewritten_by_rules"))
    for (const Json& group : (*listed)["rewritten_by_rules"])
      for (const Json& node : group["nodes"])
        if (const auto row = rows.find(node.get<std::string>()); row != rows.end())
          row->second.rules.push_back(group["rule"].get<std::string>());
  return in_order(std::move(rows));
}

std::string summary_of(const std::vector<NodeRow>& nodes) {
  std::map<std::string, size_t> by_fate;
  for (const NodeRow& row : nodes) ++by_fate[row.fate];
  std::vector<std::pair<std::string, size_t>> counts(by_fate.begin(), by_fate.end());
  std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return cat(counted(nodes.size(), "node"), counts.empty() ? "" : ": ",
             join(counts, ", ", [](const auto& count) { return cat(count.second, " ", count.first); }));
}

std::string nodes_text(const std::vector<NodeRow>& nodes) {
  std::vector<std::vector<std::string>> cells = {{"node", "fate"}};
  for (const NodeRow& row : nodes) cells.push_back({printable(row.node), printable(fate_of(row))});
  return cat(" ", summary_of(nodes), "\n", table(cells));
}

Json nodes_json(const std::vector<NodeRow>& nodes) {
  Json all = Json::array();
  for (const NodeRow& row : nodes) {
    Json one = {{"node", row.node}, {"fate", row.fate}};
    if (!row.by.empty()) one["by"] = row.by;
    if (!row.with.empty()) one["with"] = row.with;
    if (!row.rules.empty()) one["rules"] = row.rules;
    for (const NodeRow::Kernel& kernel : row.kernels)
      one["kernels"].push_back({{"name", kernel.name}, {"steps", kernel.steps}});
    all.push_back(std::move(one));
  }
  return {{"stage", "nodes"}, {"nodes", std::move(all)}};
}

}  // namespace stridec::cli
