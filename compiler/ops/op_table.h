// The facets of every primitive, side by side: one block per op in the family files (pointwise.cpp, reduction.cpp, ...).
//
// A block defines `const OpDef def_<enumerator>`; op_table.cpp lists them from op_kind.def, so an op without a block
// does not link. Composites are plain functions over graph::Builder, declared in composite.h's family headers.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/build.h"
#include "compiler/loop/program.h"
#include "compiler/loop/view.h"

namespace stridec::ops {

// What a lowering sees: the graph it lowers, the program it makes, and the view that stands for each value.
class Lowering {
 public:
  Lowering(const graph::Graph& graph, loop::Program& program);

  const graph::Graph& graph() const { return graph_; }
  loop::Program& program() { return program_; }
  const sym::Facts& facts() const { return program_.facts; }
  loop::Steps& steps() { return *steps_; }

  // The view that reads a value. Constants get a weight buffer on first use; known elements a nest that writes them.
  const loop::View& view(graph::ValueId value);
  // A fresh buffer that holds the value, written by the op being lowered: the output's own memory where the value is an
  // output of the graph, else the arena.
  loop::View define(graph::ValueId value);
  // The value is another view of memory that exists already.
  void alias(graph::ValueId value, loop::View view);
  // A buffer with these contents, row-major in the view's shape: the view itself where it already is one.
  loop::View materialise(const loop::View& view, const std::string& name);
  // Copies, elementwise, into `to` of the same shape.
  void copy(const loop::View& from, const loop::View& to, const std::string& name);
  loop::View temporary(const graph::Type& type, const std::string& name);

  // A nest builder named after the node, whose nest remembers the node's origin.
  loop::NestBuilder nest(const graph::Node& node, const std::string& name);
  // Lowers a region's nodes into `steps` (control flow).
  void lower_region(const graph::Region& region, loop::Steps& steps);

 private:
  const graph::Graph& graph_;
  loop::Program& program_;
  loop::Steps* steps_;
  std::vector<std::optional<loop::View>> views_;  // by ValueId
};

using LowerFn = void (*)(Lowering& lowering, const graph::Node& node);

// Gradients of a node's inputs given those of its outputs; an invalid id means zero.
using GradientFn = std::vector<graph::ValueId> (*)(graph::Builder& builder, const graph::Node& node,
                                                   const std::vector<graph::ValueId>& output_gradients);

struct OpDef {
  graph::ShapeFn shape;
  LowerFn lower;
  GradientFn gradient = nullptr;  // none yet: not differentiable
};

const OpDef& op_def(graph::OpKind kind);
const graph::ShapeTable& shape_table();

// The whole graph as a loop program: one nest per op over strided views.
loop::Program lower(const graph::Graph& graph);

}  // namespace stridec::ops
