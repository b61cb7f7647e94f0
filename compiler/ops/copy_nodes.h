// Copies nodes to the builder's current position, with other values and symbols in place of theirs.
#pragma once

#include <unordered_map>
#include <vector>

#include "compiler/graph/builder.h"

namespace stridec::ops {

class NodeCopier {
 public:
  explicit NodeCopier(graph::Builder& builder) : builder_(builder) {}

  void map(graph::ValueId from, graph::ValueId to) { values_[from] = to; }
  void map(sym::Expr symbol, sym::Expr to) { symbols_.emplace_back(symbol, to); }
  // A value that was neither mapped nor copied stands for itself.
  graph::ValueId at(graph::ValueId value) const;
  std::vector<graph::ValueId> at(const std::vector<graph::ValueId>& values) const;
  sym::Expr at(sym::Expr size) const;

  // Adds a copy of the node and maps its outputs. A symbol that the node binds becomes a new one.
  void copy(graph::NodeId node);
  void copy(const std::vector<graph::NodeId>& nodes);
  // A copy of the region with `parameters` of these types; the counter of a loop is mapped before.
  graph::Region copy(const graph::Region& region, const std::vector<graph::Type>& parameters,
                     sym::Expr assumption);

 private:
  graph::Attributes at(const graph::Attributes& attributes) const;
  graph::Type at(const graph::Type& type) const;
  sym::Expr bind(sym::Expr symbol, const std::string& hint, sym::Expr lower, sym::Expr upper);
  std::vector<graph::ValueId> outputs_of_copy(const graph::Node& node);
  std::vector<graph::ValueId> copy_loop(const graph::Node& node);

  graph::Builder& builder_;
  std::unordered_map<graph::ValueId, graph::ValueId> values_;
  std::vector<std::pair<sym::Expr, sym::Expr>> symbols_;
};

}  // namespace stridec::ops
