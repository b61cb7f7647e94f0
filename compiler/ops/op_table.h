// The facets of every primitive, side by side: one block per op in the family files (pointwise.cpp,
// reduction.cpp, ...).
//
// A block defines `const OpDef def_<enumerator>`; op_table.cpp lists them from op_kind.def, so an op without
// a block does not link. Composites are plain functions over graph::Builder, declared in helpers.h and
// composite/.
#pragma once

#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/program.h"

namespace stridec::ops {

class Lowering;  // lowering.h
using LowerFn = void (*)(Lowering& lowering, const graph::Node& node);

// Gradients of a node's inputs given those of its outputs; an invalid id means zero, and so does a list that
// ends early. What a node cannot say for its attributes is an Error (kUnsupported). See gradient.h.
using GradientFn = std::vector<graph::ValueId> (*)(graph::Builder& builder, const graph::Node& node,
                                                   const std::vector<graph::ValueId>& output_gradients);

struct OpDef {
  graph::ShapeFn shape;
  LowerFn lower;
  GradientFn gradient = nullptr;  // none: an error where a gradient would have to go through it
};

#define STRIDEC_OP(id, ...) extern const OpDef def_##id;
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP

const OpDef& op_def(graph::OpKind kind);
const graph::ShapeTable& shape_table();

// The whole graph as a loop program: one nest per op over strided views.
loop::Program lower(const graph::Graph& graph);

}  // namespace stridec::ops
