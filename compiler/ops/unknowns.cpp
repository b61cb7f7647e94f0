#include "compiler/ops/unknowns.h"

#include <algorithm>

#include "compiler/ops/copy_nodes.h"
#include "compiler/ops/gradient.h"

namespace stridec::ops {
namespace {

using graph::Builder;
using graph::NodeId;
using graph::OpKind;
using graph::ValueId;

// What the node computes its outputs from: its inputs and what its regions read.
std::vector<ValueId> sources(const graph::Graph& graph, const graph::Node& node) {
  std::vector<ValueId> out = node.inputs;
  if (node.regions.empty()) return out;
  const std::vector<ValueId> more = captured(graph, node);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace

bool Unknowns::has(std::string_view name, const graph::Type& type) const {
  return !names_.empty() && is_float(type.dtype) && names_.contains(std::string(name));
}

ValueId Unknowns::apart(Builder& builder, const std::string& name, ValueId value) {
  const graph::Value& known = builder.graph()[value];
  if (!has(name, known.type)) return value;
  if (const graph::Data* data = known.known_data()) return builder.constant(name, known.type, *data);
  const ValueId own = builder.add1(OpKind::kStopGradient, {value}, {{"of", name}});
  computed_[own] = value;
  return own;
}

ValueId Unknowns::recompute(Builder& builder, ValueId y,
                            const std::vector<std::pair<ValueId, ValueId>>& instead) const {
  const graph::Graph& graph = builder.graph();
  NodeCopier copier(builder);
  std::unordered_set<ValueId> changed;
  for (const auto& [from, to] : instead) copier.map(from, to), changed.insert(from);
  // The nodes that y depends on, not going beyond what changes, in the order of their creation.
  std::vector<NodeId> nodes;
  std::unordered_set<NodeId> seen;
  std::vector<ValueId> open = {y};
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    const NodeId producer = graph[value].producer;
    if (changed.contains(value) || !producer.valid() || !seen.insert(producer).second) continue;
    nodes.push_back(producer);
    const std::vector<ValueId> more = sources(graph, graph[producer]);
    open.insert(open.end(), more.begin(), more.end());
  }
  std::ranges::sort(nodes, {}, &NodeId::value);
  for (const NodeId id : nodes) {
    const graph::Node node = graph[id];  // a copy: new nodes move none, but regions may grow
    if (std::ranges::none_of(sources(graph, node), [&](ValueId v) { return changed.contains(v); })) continue;
    changed.insert(node.outputs.begin(), node.outputs.end());
    if (computed_.contains(node.outputs[0]))
      copier.map(node.outputs[0], copier.at(node.inputs[0]));
    else
      copier.copy(id);
  }
  return copier.at(y);
}

void Unknowns::release(graph::Graph& graph, const Builder::Replaceable& replaceable) const {
  if (names_.empty()) return;
  for (graph::Value& value : graph.values)
    if (value.replaceable && has(value.name, value.type))
      value.replaceable = replaceable && replaceable(value.name, value.type);
  const auto replace = [&](std::vector<ValueId>& values) {
    for (ValueId& value : values)
      for (auto found = computed_.find(value); found != computed_.end(); found = computed_.find(value))
        value = found->second;
  };
  for (graph::Node& node : graph.nodes) {
    replace(node.inputs);
    for (graph::Region& region : node.regions) replace(region.results);
  }
  replace(graph.top.results);
}

}  // namespace stridec::ops
