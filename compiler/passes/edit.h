// Changing a graph in place: who uses what, new nodes at a place of one's choice, uses that turn to another
// value.
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
  // The one node that uses the value, in the region where the value is made; none where there are more uses,
  // or results of a region among them. As the graph was before the edit.
  std::optional<graph::NodeId> only_user(graph::ValueId value) const;
  // Computed from constants alone, of constant shape.
  bool is_constant(graph::ValueId value) const { return sources_.contains(value); }
  // And not much larger than those constants together: what is expanded from a few numbers, or from numbers of a few
  // bits, costs a run less to make than to read, and compiling leaves it to the run.
  bool is_stored_constant(graph::ValueId value) const;

  // The nodes that `make` adds go in front of `at`, after `moved`, which leaves its place.
  void insert_before(graph::NodeId at, const std::function<void(graph::Builder&)>& make,
                     std::optional<graph::NodeId> moved = {});
  // The nodes there are now, each before those of its regions; `visit` may insert and replace.
  void for_each_node(const std::function<void(graph::NodeId)>& visit) { visit_region(graph_.top, visit); }
  void replace(graph::ValueId value, graph::ValueId by) { replaced_[value] = by; }

  // Carries out moves and replacements, and drops what is dead.
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
  // The largest of the stored constants behind each constant.
  std::unordered_map<graph::ValueId, std::vector<graph::ValueId>> sources_;
  std::unordered_map<graph::NodeId, std::vector<graph::NodeId>> before_;
  std::unordered_set<graph::NodeId> moved_;
  std::unordered_map<graph::ValueId, graph::ValueId> replaced_;
};

}  // namespace stridec::passes
