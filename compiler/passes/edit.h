// Edits a graph in place: finds users, inserts nodes at a chosen place, and redirects uses to another value.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"

namespace stridec::passes {

class Edit {
 public:
  explicit Edit(graph::Graph& graph);

  graph::Graph& graph() { return graph_; }
  // The only node that uses the value, if it is in the region that defines the value. nullopt if there are
  // several uses or one of them is a region result. Describes the graph before the edit.
  std::optional<graph::NodeId> only_user(graph::ValueId value) const;
  // Whether the value is computed only from constants and has a constant shape.
  bool is_constant(graph::ValueId value) const { return sources_.contains(value); }
  // Whether, in addition, it is not much larger than those constants. Otherwise it is expanded from few
  // values, or from values of a few bits: a run then computes it faster than it would read it, so it is left
  // to the run.
  bool is_stored_constant(graph::ValueId value) const;

  // Inserts the nodes that `make` adds before `at`. `moved` is moved to the place between them and `at`.
  void insert_before(graph::NodeId at, const std::function<void(graph::Builder&)>& make,
                     std::optional<graph::NodeId> moved = {});
  // Visits the nodes that exist now, each before those of its regions. `visit` may insert and replace.
  void for_each_node(const std::function<void(graph::NodeId)>& visit) { visit_region(graph_.top, visit); }
  void replace(graph::ValueId value, graph::ValueId by) { replaced_[value] = by; }

  // Applies moves and replacements, and drops dead nodes.
  void finish();

 private:
  void look(const graph::Region& region);
  void add_sources(std::vector<graph::ValueId>& to, const std::vector<graph::ValueId>& from) const;
  void place(graph::Region& region);
  void visit_region(const graph::Region& region, const std::function<void(graph::NodeId)>& visit);
  void turn(std::vector<graph::ValueId>& values) const;

  graph::Graph& graph_;
  std::unordered_map<graph::ValueId, int> uses_;
  std::unordered_map<graph::ValueId, graph::NodeId> user_;
  std::unordered_map<graph::NodeId, const graph::Region*> region_;
  // For each constant, the largest stored constant that it is computed from.
  std::unordered_map<graph::ValueId, std::vector<graph::ValueId>> sources_;
  std::unordered_map<graph::NodeId, std::vector<graph::NodeId>> before_;
  std::unordered_set<graph::NodeId> moved_;
  std::unordered_map<graph::ValueId, graph::ValueId> replaced_;
};

}  // namespace stridec::passes
