#include "compiler/frontend/onnx/node_list.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compiler/base/text.h"

namespace stridec::onnx {
namespace {

using Names = std::unordered_set<std::string>;

// Adds the nodes that results depend on to `needed`, and the names that they read to `read`.
void mark(const Graph& graph, Names& read, std::unordered_set<const Node*>& needed) {
  for (const ValueInfo& output : graph.outputs) read.insert(output.name);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool live = std::any_of(node->outputs.begin(), node->outputs.end(),
                                  [&](const std::string& name) { return read.contains(name); });
    if (!live) continue;
    needed.insert(&*node);
    for (const Attribute& attribute : node->attributes)
      for (const Graph& inner : attribute.graphs) mark(inner, read, needed);
    for (const std::string& name : node->inputs)
      if (!name.empty()) read.insert(name);
  }
}

void append(const Graph& graph, const std::unordered_set<const Node*>& needed,
            std::unordered_map<std::string, size_t>& places, std::vector<graph::ModelNode>& nodes) {
  for (const Node& node : graph.nodes) {
    const auto [place, fresh] = places.emplace(origin_of(node), nodes.size());
    const bool live = needed.contains(&node);
    if (fresh) {
      nodes.push_back({.text = place->first, .needed = live});
    } else {
      ++nodes[place->second].count;
      nodes[place->second].needed |= live;
    }
    for (const Attribute& attribute : node.attributes)
      for (const Graph& inner : attribute.graphs) append(inner, needed, places, nodes);
  }
}

void place(std::vector<Node>& nodes, const std::string& prefix) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].place = cat(prefix, i);
    for (Attribute& attribute : nodes[i].attributes)
      for (size_t g = 0; g < attribute.graphs.size(); ++g)
        place(attribute.graphs[g].nodes,
              cat(nodes[i].place, ".", attribute.name, attribute.graphs.size() > 1 ? cat(".", g) : "", "."));
  }
}

}  // namespace

void place_nodes(Model& model) {
  place(model.graph.nodes, "");
  for (Function& function : model.functions) place(function.nodes, "");
}

std::string origin_of(const Node& node) { return cat(describe(node), " (", node.op_type, ")"); }

std::vector<graph::ModelNode> list_nodes(const Model& model) {
  Names read;
  std::unordered_set<const Node*> needed;
  mark(model.graph, read, needed);
  std::unordered_map<std::string, size_t> places;
  std::vector<graph::ModelNode> nodes;
  append(model.graph, needed, places, nodes);
  return nodes;
}

}  // namespace stridec::onnx
