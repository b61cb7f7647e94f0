#include "compiler/graph/model_node.h"

#include <algorithm>
#include <set>
#include <string_view>
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

std::set<std::string_view> texts_of(const Graph& graph) {
  std::set<std::string_view> texts;
  for (const Node& node : graph.nodes)
    if (!node.origin.empty()) texts.insert(node.origin);
  return texts;
}

// "node 412" of "node 412 'head/nms' (NonMaxSuppression)"; "" for a text without a number.
std::string_view number_of(std::string_view text) {
  constexpr std::string_view kNode = "node ";
  if (!text.starts_with(kNode) || text.size() == kNode.size()) return "";
  const char first = text[kNode.size()];
  return first < '0' || first > '9' ? "" : text.substr(0, text.find(' ', kNode.size()));
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

std::map<std::string, std::string> renamed_origins(const Graph& before, Graph& after) {
  const std::set<std::string_view> was = texts_of(before), is = texts_of(after);
  std::map<std::string_view, std::string_view> by_number;  // texts that are no longer there
  for (const std::string_view text : was)
    if (!is.contains(text)) by_number.emplace(number_of(text), text);
  by_number.erase("");
  const bool same = std::ranges::equal(before.nodes, after.nodes, {}, &Node::kind, &Node::kind);
  std::vector<std::string> made;  // new text by node; `is` has views of the origins
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < after.nodes.size(); ++i) {
    const std::string& text = after.nodes[i].origin;
    made.push_back(text);
    if (text.empty() || was.contains(text)) continue;
    std::string_view old;
    if (same) old = before.nodes[i].origin;
    if (old.empty() || is.contains(old)) {
      const auto found = by_number.find(number_of(text));
      if (found == by_number.end()) continue;
      old = found->second;
    }
    made.back() = names.emplace(old, text).first->second;
  }
  for (size_t i = 0; i < made.size(); ++i) after.nodes[i].origin = std::move(made[i]);
  return names;
}

}  // namespace stridec::graph
