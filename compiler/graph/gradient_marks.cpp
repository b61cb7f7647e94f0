#include "compiler/graph/gradient_marks.h"

#include <algorithm>
#include <string_view>

namespace stridec::graph {

namespace {

bool is_mark(OpKind kind) { return kind == OpKind::kStopGradient || kind == OpKind::kAsSoftmax; }

// The value without marks. A mark is an alias of its last input.
ValueId source(const Graph& graph, ValueId value) {
  while (value.valid()) {
    const NodeId producer = graph[value].producer;
    if (!producer.valid() || !is_mark(graph[producer].kind)) break;
    value = graph[producer].inputs.back();
  }
  return value;
}

void replace(const Graph& graph, std::vector<ValueId>& values) {
  for (ValueId& value : values) value = source(graph, value);
}

// Attributes that rules of gradients alone read.
void drop_attributes(Node& node) {
  constexpr std::string_view kMarks[] = {"ties", "no_gradient_at", "shared_gradient"};
  if (std::ranges::none_of(kMarks, [&](std::string_view mark) { return node.attributes.find(mark); })) return;
  Attributes kept;
  for (const auto& [name, value] : node.attributes.items())
    if (std::ranges::count(kMarks, name) == 0) kept.set(name, value);
  node.attributes = std::move(kept);
}

}  // namespace

void drop_gradient_marks(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (is_mark(node.kind)) {
      Value& x = graph[source(graph, node.outputs[0])];
      if (x.name.empty()) x.name = graph[node.outputs[0]].name;
      continue;
    }
    replace(graph, node.inputs);
    for (Region& region : node.regions) replace(graph, region.results);
    drop_attributes(node);
  }
  replace(graph, graph.top.results);
}

}  // namespace stridec::graph
