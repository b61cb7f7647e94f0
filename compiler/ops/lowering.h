// What an op's lowering sees: the graph, the program under construction, and the view that stands for each
// value.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/loop/build.h"
#include "compiler/loop/program.h"
#include "compiler/loop/view.h"

namespace stridec::ops {

class Lowering {
 public:
  Lowering(const graph::Graph& graph, loop::Program& program);
  void run();  // the whole graph

  const graph::Graph& graph() const { return graph_; }
  loop::Program& program() { return program_; }
  const sym::Facts& facts() const { return program_.facts; }
  loop::Steps& steps() { return *steps_; }
  const graph::Type& type(graph::ValueId value) const { return graph_[value].type; }

  // The view that reads a value. Constants get a weight buffer on first use; known elements a nest that
  // writes them.
  const loop::View& view(graph::ValueId value);
  // The element of a value at `at`, broadcast (right-aligned) to the rank of `at` and the extents `shape`. A
  // constant of one element is a constant of the nest, a known element an index expression.
  loop::Value read(loop::NestBuilder& nest, graph::ValueId value, const std::vector<sym::Expr>& shape,
                   const std::vector<sym::Expr>& at);
  // The value's elements as expressions, where the program can tell them: the graph also knows elements of values that a
  // later node makes symbols of, which have no number before.
  std::optional<std::vector<sym::Expr>> known(graph::ValueId value) const;
  // The value itself where it is one number known at compile time.
  std::optional<loop::Scalar> constant_scalar(graph::ValueId value) const;
  // A fresh buffer that holds the value, written by the op being lowered: the output's own memory where the
  // value is an output of the graph, else the arena.
  loop::View define(graph::ValueId value);
  // The value is another view of memory that exists already.
  void alias(graph::ValueId value, loop::View view);
  // A buffer with these contents, row-major in the view's shape: the view itself where it already is one.
  loop::View materialise(const loop::View& view, const std::string& name);
  // Copies, elementwise, into `to` of the same shape.
  void copy(const loop::View& from, const loop::View& to, const std::string& name);
  // Writes one scalar everywhere.
  void fill(const loop::View& to, loop::Scalar value, const std::string& name);
  loop::View temporary(const graph::Type& type, const std::string& name);
  // An integer scalar becomes a symbol of the program when the run gets here.
  void bind_symbol(sym::Expr symbol, const loop::View& scalar, sym::Expr lower, sym::Expr upper,
                   std::string sentence, std::vector<sym::Expr> values = {});
  sym::Expr fresh_symbol(const std::string& hint, sym::Expr lower, sym::Expr upper);
  // The state changes at the end of the run: what reads it before sees its old contents.
  void update_state(graph::ValueId state, graph::ValueId value);
  // A view to change elements of, which holds what `from` does and is what `result` is from now on: a copy, or a state
  // itself that has no other use.
  loop::View changed(graph::ValueId from, graph::ValueId result, const std::string& name);

  // A nest builder; its nest remembers the origin of the node that is being lowered. finish(&steps()) ends
  // it.
  loop::NestBuilder nest(const std::string& name) { return loop::NestBuilder(program_, name); }
  // Lowers a region's nodes into `steps` (control flow), then calls `after` while its values are visible.
  template <class After>
  void lower_region(const graph::Region& region, loop::Steps& steps, After&& after) {
    Scope scope = enter(steps);
    lower_nodes(region);
    after();
    leave(std::move(scope));
  }
  // "node 412 'head/nms' (NonMaxSuppression): " or nothing, with braces doubled: the start of a sentence of
  // the run.
  static std::string origin_prefix(const graph::Node& node);

 private:
  struct Scope {
    loop::Steps* steps;
    std::vector<graph::ValueId> elements;
  };
  Scope enter(loop::Steps& steps);
  void leave(Scope scope);
  void lower_nodes(const graph::Region& region);
  // Nests from `first` on that have no node yet compute this one; the last nest that which makes the value.
  void credit(const graph::Node& node, size_t first);
  void credit(graph::ValueId value);
  void write_elements(graph::ValueId value);
  void write_outputs();
  bool is_whole_state(graph::ValueId value, const loop::View& view) const;

  const graph::Graph& graph_;
  loop::Program& program_;
  loop::Steps* steps_;
  std::vector<std::optional<loop::View>> views_;  // by ValueId
  std::vector<graph::ValueId> scope_elements_;    // known elements written to memory by the current steps
  std::unordered_map<graph::ValueId, loop::BufferId> outputs_;  // values with an output's memory
  std::vector<std::pair<graph::ValueId, graph::ValueId>> updates_;
  std::vector<int> uses_;                                 // of each value, by nodes and as results of regions
  std::unordered_set<sym::Expr, sym::ExprHash> unbound_;  // symbols of elements, until the program binds them
  int next_symbol_ = 0;
};

}  // namespace stridec::ops
