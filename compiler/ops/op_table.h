// The facets of every primitive: shape function, lowering, gradient. The family files (pointwise.cpp,
// reduction.cpp, ...) have one block per op.
//
// A block defines `const OpDef def_<enumerator>`. op_table.cpp lists them from op_kind.def, so an op without
// a block fails to link. Composites are plain functions over graph::Builder, declared in helpers.h and
// composite.h.
#pragma once

#include <vector>

#include "compiler/graph/builder.h"
#include "compiler/graph/graph.h"
#include "compiler/loop/program.h"

namespace stridec::ops {

class Lowering;  // lowering.h
using LowerFn = void (*)(Lowering& lowering, const graph::Node& node);

// Gradients of a node's inputs, given those of its outputs. An invalid id means zero; missing ids at the end
// of the list mean zero too. Throws Error (kUnsupported) if the node's attributes are not supported. See
// gradient.h.
using GradientFn = std::vector<graph::ValueId> (*)(graph::Builder& builder, const graph::Node& node,
                                                   const std::vector<graph::ValueId>& output_gradients);

struct OpDef {
  graph::ShapeFn shape;
  LowerFn lower;
  GradientFn gradient = nullptr;  // none: differentiating through the op is an error
};

#define STRIDEC_OP(id, ...) extern const OpDef def_##id;
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP

const OpDef& op_def(graph::OpKind kind);
const graph::ShapeTable& shape_table();

// Lowers the whole graph to a loop program: one nest per op over strided views.
loop::Program lower(const graph::Graph& graph);

}  // namespace stridec::ops
