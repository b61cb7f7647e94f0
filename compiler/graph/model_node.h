// The model's own nodes as the frontend found them, and what import made of each, for reports on what became
// of every node.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace stridec::graph {

// What the outputs of an imported node are.
enum class Outcome : uint8_t {
  kNone,      // it was not imported: a branch that is never taken, or nothing reads its results
  kConstant,  // values known when compiling
  kSize,      // expressions over the sizes of inputs
  kAlias,     // values of its inputs, or views that cancel out
  kShared,    // values of another node, which computes the same
  kNodes,     // results of operations that have it as their origin
};

struct ModelNode {
  std::string text;    // as in Node::origin
  bool needed = true;  // an output or a side effect of the model depends on it
  Outcome outcome = Outcome::kNone;
  std::string with = {};  // kShared: the other node
  int count = 1;          // nodes with this text; subgraphs may have several without a name
};

bool is_view(OpKind kind);

// Sets outcome and `with`. `outputs` may be empty: the node made no tensor.
void set_outcome(ModelNode& node, const Graph& graph, std::span<const ValueId> inputs,
                 std::span<const ValueId> outputs);

// The origins of a graph's nodes, each once, in order: the model's nodes, where no frontend lists them.
std::vector<ModelNode> origins_of(const Graph& graph);

// How a pass of the user renamed origins, by the old text. A new text stands for the node at the same place,
// if the operations are the same, or for the one with its number. Operations of one node that have several
// new texts get the first of them.
std::map<std::string, std::string> renamed_origins(const Graph& before, Graph& after);

}  // namespace stridec::graph
