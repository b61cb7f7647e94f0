#include "compiler/graph/model_node.h"

#include <algorithm>
#include <unordered_set>

namespace stridec::graph {
namespace {

// Whether the value is one of the inputs, or what an input is a view of.
bool comes_from(const Graph& graph, std::span<const ValueId> inputs, ValueId value) {
  for (ValueId id : inputs)
    while (id.valid()) {
      if (id == value) return true;
      const NodeId producer = graph[id].producer;
      if (!producer.valid() || !is_view(graph[producer].kind)) break;
      id = graph[producer].inputs.front();
    }
  return false;
}

Outcome outcome_of(const ModelNode& node, const Graph& graph, std::span<const ValueId> inputs,
                   ValueId value) {
  const NodeId producer = graph[value].producer;
  if (comes_from(graph, inputs, value) || !producer.valid()) return Outcome::kAlias;
  if (graph[producer].kind == OpKind::kConstant) return Outcome::kConstant;
  if (graph[producer].kind == OpKind::kElements) return Outcome::kSize;
  if (graph[producer].origin == node.text) return Outcome::kNodes;
  return graph[producer].origin.empty() ? Outcome::kAlias : Outcome::kShared;
}

}  // namespace

bool is_view(OpKind kind) {
  return kind == OpKind::kReshape || kind == OpKind::kPermute || kind == OpKind::kSlice ||
         kind == OpKind::kExpand;
}

void set_outcome(ModelNode& node, const Graph& graph, std::span<const ValueId> inputs,
                 std::span<const ValueId> outputs) {
  node.outcome = outputs.empty() ? Outcome::kAlias : Outcome::kConstant;
  for (const ValueId value : outputs) {
    const Outcome outcome = outcome_of(node, graph, inputs, value);
    if (outcome == Outcome::kShared && node.outcome < outcome)
      node.with = graph[graph[value].producer].origin;
    node.outcome = std::max(node.outcome, outcome);
  }
  if (node.outcome != Outcome::kShared) node.with.clear();
}

std::vector<ModelNode> origins_of(const Graph& graph) {
  std::vector<ModelNode> nodes;
  std::unordered_set<std::string> seen;
  for (const Node& node : graph.nodes)
    if (!node.origin.empty() && seen.insert(node.origin).second)
      nodes.push_back({.text = node.origin, .outcome = Outcome::kNodes});
  return nodes;
}

}  // namespace stridec::graph
