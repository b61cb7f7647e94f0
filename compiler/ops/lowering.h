// The interface of an op's lowering function: the graph, the program under construction, and the view that
// represents each value.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/loop/buffer_names.h"
#include "compiler/loop/build.h"
#include "compiler/loop/program.h"
#include "compiler/loop/view.h"

namespace stridec::ops {

class Lowering {
 public:
  Lowering(const graph::Graph& graph, loop::Program& program);
  void run();  // lowers the whole graph

  const graph::Graph& graph() const { return graph_; }
  loop::Program& program() { return program_; }
  const sym::Facts& facts() const { return program_.facts; }
  loop::Steps& steps() { return *steps_; }
  const graph::Type& type(graph::ValueId value) const { return graph_[value].type; }

  // The view to read a value from. A constant gets a weight buffer on first use; known elements get a nest
  // that writes them.
  const loop::View& view(graph::ValueId value);
  // The value's element at `at`, broadcast (right-aligned) to the rank of `at` and the extents `shape`. A
  // one-element constant becomes a constant of the nest, a known element an index expression.
  loop::Value read(loop::NestBuilder& nest, graph::ValueId value, const std::vector<sym::Expr>& shape,
                   const std::vector<sym::Expr>& at);
  // The value's elements as expressions, if the program can evaluate them at this point. The graph may also
  // know elements as symbols that a later node binds; those have no value yet.
  std::optional<std::vector<sym::Expr>> known(graph::ValueId value) const;
  // The value as a scalar, if it is a single element known at compile time.
  std::optional<loop::Scalar> constant_scalar(graph::ValueId value) const;
  // A new buffer for the value, which the op being lowered writes: the output's buffer if the value is an
  // output of the graph, an arena buffer otherwise.
  loop::View define(graph::ValueId value);
  // The same, but if the value's only use is a concat of the same region, the memory is its part of the
  // result. Only for values that are written once and wholly.
  loop::View define_part(graph::ValueId value);
  // For the concat: the memory of its result, which exists if a part was defined before; and whether such a
  // part is in its place already.
  loop::View define_whole(graph::ValueId value);
  bool is_in_place(graph::ValueId value) const { return in_place_.contains(value); }
  // Makes the value a view of existing memory.
  void alias(graph::ValueId value, loop::View view);
  // A buffer with the view's contents, row-major in the view's shape; the view itself if it already is such a
  // buffer.
  loop::View materialise(const loop::View& view, const std::string& name);
  // Copies elementwise into `to`, which has the same shape.
  void copy(const loop::View& from, const loop::View& to, const std::string& name);
  // Writes one scalar to every element.
  void fill(const loop::View& to, loop::Scalar value, const std::string& name);
  loop::View temporary(const graph::Type& type, const std::string& name);
  // Binds a symbol of the program to the value of an integer scalar at this point of the run.
  void bind_symbol(sym::Expr symbol, const loop::View& scalar, sym::Expr lower, sym::Expr upper,
                   std::string sentence, std::vector<sym::Expr> values = {});
  sym::Expr fresh_symbol(const std::string& hint, sym::Expr lower, sym::Expr upper);
  // Assigns `value` to the state at the end of the run; reads before that see the old contents.
  void update_state(graph::ValueId state, graph::ValueId value);
  // A view to modify in place, which starts with the contents of `from` and becomes the value `result`: a
  // copy, or the state's own memory if the state has no other use.
  loop::View changed(graph::ValueId from, graph::ValueId result, const std::string& name);

  // A nest builder. The nest records the origin of the node being lowered. finish(&steps()) completes it.
  loop::NestBuilder nest(const std::string& name) { return loop::NestBuilder(program_, name); }
  // Lowers a region's nodes into `steps` (control flow), then calls `after` while its values are visible.
  template <class After>
  void lower_region(const graph::Region& region, loop::Steps& steps, After&& after) {
    Scope scope = enter(steps);
    lower_nodes(region);
    after();
    leave(std::move(scope));
  }
  // Prefix of a run-time error message: "node 412 'head/nms' (NonMaxSuppression): " or empty, with braces
  // doubled.
  static std::string origin_prefix(const graph::Node& node);

 private:
  struct Scope {
    loop::Steps* steps;
    std::vector<graph::ValueId> elements;
  };
  Scope enter(loop::Steps& steps);
  void leave(Scope scope);
  void lower_nodes(const graph::Region& region);
  void find_parts(const graph::Region& region);
  // Attributes nests from `first` on that have no node yet to this one; the last of them gets the node's
  // value.
  void credit(const graph::Node& node, size_t first);
  void credit(graph::ValueId value);
  void write_elements(graph::ValueId value);
  void write_outputs();
  bool is_whole_state(graph::ValueId value, const loop::View& view) const;

  const graph::Graph& graph_;
  loop::Program& program_;
  loop::BufferNames names_;
  loop::Steps* steps_;
  std::vector<std::optional<loop::View>> views_;  // by ValueId
  // known elements already written to memory by the current steps
  std::vector<graph::ValueId> scope_elements_;
  std::unordered_map<graph::ValueId, loop::BufferId> outputs_;  // values stored in an output's buffer
  // Values whose only use is this concat, and those that were defined as parts of its result.
  std::unordered_map<graph::ValueId, graph::NodeId> parts_;
  std::unordered_set<graph::ValueId> in_place_;
  std::vector<std::pair<graph::ValueId, graph::ValueId>> updates_;
  std::unordered_map<loop::NodeId, int32_t> values_of_;  // how many values of nests a node of the model has
  std::vector<int> uses_;  // of each value: reads by nodes and results of regions
  // symbols of elements that the program has not bound yet
  std::unordered_set<sym::Expr, sym::ExprHash> unbound_;
  int next_symbol_ = 0;
};

}  // namespace stridec::ops
