// Values of a model that something computed from them is to be a function of: those that ONNX's Gradient
// differentiates with respect to, and those that it holds.
//
// The function takes any values in place of the named ones. So nothing is folded into what is computed from
// these, and each of them is a value of its own, even if another name has an equal one. The function is then
// copied out of the graph.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/graph/builder.h"

namespace stridec::ops {

class Unknowns {
 public:
  explicit Unknowns(std::unordered_set<std::string> names) : names_(std::move(names)) {}

  // Whether a constant of this name is to be a parameter while the model is imported.
  bool has(std::string_view name, const graph::Type& type) const;
  // What the name stands for from now on, where a node has just computed `value` for it.
  graph::ValueId apart(graph::Builder& builder, const std::string& name, graph::ValueId value);

  // y with values in place of others: copies the nodes in between to the builder's current position.
  graph::ValueId recompute(graph::Builder& builder, graph::ValueId y,
                           const std::vector<std::pair<graph::ValueId, graph::ValueId>>& instead) const;

  // Ends the import: parameters that the user did not ask for are constants again, and values of their own
  // are those that nodes computed.
  void release(graph::Graph& graph, const graph::Builder::Replaceable& replaceable) const;

 private:
  std::unordered_set<std::string> names_;
  std::unordered_map<graph::ValueId, graph::ValueId> computed_;  // by the value that stands for it
};

}  // namespace stridec::ops
