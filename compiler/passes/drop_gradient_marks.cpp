#include "compiler/passes/drop_gradient_marks.h"

namespace stridec::passes {

using graph::Graph;
using graph::Node;
using graph::OpKind;
using graph::ValueId;

namespace {

ValueId source(const Graph& graph, ValueId value) {
  while (value.valid()) {
    const graph::NodeId producer = graph[value].producer;
    if (!producer.valid() || graph[producer].kind != OpKind::kStopGradient) break;
    value = graph[producer].inputs[0];
  }
  return value;
}

void replace(const Graph& graph, std::vector<ValueId>& values) {
  for (ValueId& value : values) value = source(graph, value);
}

}  // namespace

void drop_gradient_marks(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.kind == OpKind::kStopGradient) {
      graph::Value& x = graph[source(graph, node.outputs[0])];
      if (x.name.empty()) x.name = graph[node.outputs[0]].name;
      continue;
    }
    replace(graph, node.inputs);
    for (graph::Region& region : node.regions) replace(graph, region.results);
    if ((node.kind != OpKind::kMin && node.kind != OpKind::kMax) || !node.attributes.find("ties")) continue;
    node.attributes = {};
  }
  replace(graph, graph.top.results);
}

}  // namespace stridec::passes
