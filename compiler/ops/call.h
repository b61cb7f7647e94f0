// The primitive `call`: a routine of the library (loop/library.def), for what nests cannot express. What the
// routines mean in a graph is one table, in call.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ops/op_table.h"

namespace stridec::ops {

// Reads and writes of the routine are the node's inputs and outputs, in order, dense and row-major.
struct CallDef {
  std::string_view routine;  // a row of loop/library.def
  std::vector<std::string_view> attributes;
  graph::ShapeFn shape;
  // The routine's size arguments. Views of inputs and outputs exist.
  std::vector<sym::Expr> (*arguments)(Lowering& lowering, const graph::Node& node);
  Gradient gradient;
};
// Elements of a state of the routine mersenne_draw.
inline constexpr int64_t kMersenneState = 628;
// And of the routine philox_draw.
inline constexpr int64_t kPhiloxState = 3;

std::span<const CallDef> call_defs();
// The row of a node that is a call.
const CallDef& call_def(const graph::Node& node);

// Adds a call with these attributes and returns its outputs.
std::vector<graph::ValueId> add_call(graph::Builder& builder, const std::string& routine,
                                     std::vector<graph::ValueId> inputs, graph::Attributes attributes = {});

}  // namespace stridec::ops
