#include "compiler/train/edit.h"

#include <deque>
#include <functional>
#include <vector>

namespace stridec::train {

void redirect(graph::Graph& graph, const std::map<graph::ValueId, graph::ValueId>& to) {
  const auto turn = [&](std::vector<graph::ValueId>& values) {
    for (graph::ValueId& value : values)
      if (const auto found = to.find(value); found != to.end()) value = found->second;
  };
  const std::function<void(graph::Region&)> turn_region = [&](graph::Region& region) {
    turn(region.results);
    for (graph::NodeId id : region.nodes)
      for (graph::Region& inner : graph[id].regions) turn_region(inner);
  };
  for (graph::Node& node : graph.nodes) turn(node.inputs);
  turn_region(graph.top);
}

void number_in_order(graph::Graph& graph) {
  std::vector<graph::NodeId> order;
  const std::function<void(const graph::Region&)> visit = [&](const graph::Region& region) {
    for (graph::NodeId id : region.nodes) {
      for (const graph::Region& inner : graph[id].regions) visit(inner);
      order.push_back(id);
    }
  };
  visit(graph.top);
  std::vector<graph::NodeId> number(graph.nodes.size());
  std::deque<graph::Node> nodes;
  for (graph::NodeId id : order) {
    number[id.value] = graph::NodeId(static_cast<int64_t>(nodes.size()));
    nodes.push_back(std::move(graph.nodes[id.value]));
  }
  const std::function<void(graph::Region&)> renumber = [&](graph::Region& region) {
    for (graph::NodeId& id : region.nodes) {
      id = number[id.value];
      for (graph::Region& inner : nodes[id.value].regions) renumber(inner);
    }
  };
  renumber(graph.top);
  for (graph::Value& value : graph.values)
    if (value.producer.valid()) value.producer = number[value.producer.value];
  graph.nodes = std::move(nodes);
}

}  // namespace stridec::train
