#include "compiler/graph/gradient_marks.h"

#include <algorithm>
#include <string_view>

namespace stridec::graph {

namespace {

bool is_mark(OpKind kind) {
  return kind == OpKind::kStopGradient || kind == OpKind::kAsSoftmax || kind == OpKind::kUserGradient;
}

// The value without marks. A mark is an alias of its last input, or its results are those of its first
// inputs.
ValueId source(const Graph& graph, ValueId value) {
  while (value.valid()) {
    const NodeId producer = graph[value].producer;
    if (!producer.valid() || !is_mark(graph[producer].kind)) break;
    const Node& mark = graph[producer];
    value = mark.kind == OpKind::kUserGradient ? mark.inputs[static_cast<size_t>(graph[value].output)]
                                               : mark.inputs.back();
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
      for (const ValueId output : node.outputs) {
        Value& x = graph[source(graph, output)];
        if (x.name.empty()) x.name = graph[output].name;
      }
      continue;
    }
    replace(graph, node.inputs);
    for (Region& region : node.regions) replace(graph, region.results);
    drop_attributes(node);
  }
  replace(graph, graph.top.results);
}

}  // namespace stridec::graph
