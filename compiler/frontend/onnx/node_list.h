// All nodes of a model, subgraphs included, for reports on what became of each.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/onnx/model.h"
#include "compiler/graph/model_node.h"

namespace stridec::onnx {

// graph::Node::origin of what the node becomes: "node 412 'head/nms' (NonMaxSuppression)".
std::string origin_of(const Node& node);

// Sets Node::place of all nodes; in functions, the place within the function.
void place_nodes(Model& model);

// In the model's order, those of a subgraph after the node that has it. `needed` follows the names that nodes
// read, back from the model's outputs.
std::vector<graph::ModelNode> list_nodes(const Model& model);

}  // namespace stridec::onnx
