// The facets of every primitive: shape function, lowering, gradient. The family files (pointwise.cpp,
// reduction.cpp, ...) have one block per op.
//
// A block defines `const OpDef def_<enumerator>`. op_table.cpp lists them from op_kind.def, so an op without
// a block fails to link. Composites are plain functions over graph::Builder, declared in
// ops/composite/.
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
// The same for control flow: gradients of the values in `wanted`, which are inputs of the node or values of
// the enclosing region that its regions read.
class Backward;  // gradient.h
using RegionGradientFn = std::vector<graph::ValueId> (*)(Backward& backward, const graph::Node& node,
                                                         const std::vector<graph::ValueId>& output_gradients,
                                                         const std::vector<graph::ValueId>& wanted);

// The gradient facet. There is no default: a row of the table without one does not compile. The text is for
// people: `formula` names the inputs as op_kind.def does, y the output and g its gradient; `note` states
// ties, conventions and limits, or why the gradient is zero.
class Gradient {
 public:
  static consteval Gradient by(GradientFn rule, const char* formula, const char* note = "") {
    return {Kind::kRule, rule, nullptr, formula, note};
  }
  static consteval Gradient of_regions(RegionGradientFn rule, const char* formula, const char* note = "") {
    return {Kind::kRegions, nullptr, rule, formula, note};
  }
  // Zero: the op is piecewise constant, or stops gradients on purpose.
  static consteval Gradient flat(const char* why) { return {Kind::kZero, nullptr, nullptr, "0", why}; }
  // The op has no inputs, or no results, that are floats and depend on each other.
  static consteval Gradient none(const char* why) { return {Kind::kZero, nullptr, nullptr, "none", why}; }

  bool is_zero() const { return kind_ == Kind::kZero; }
  GradientFn rule() const { return rule_; }                  // null: of_regions, or zero
  RegionGradientFn region_rule() const { return regions_; }  // null: not of_regions
  const char* formula() const { return formula_; }
  const char* note() const { return note_; }

 private:
  enum class Kind { kRule, kRegions, kZero };
  consteval Gradient(Kind kind, GradientFn rule, RegionGradientFn regions, const char* formula,
                     const char* note)
      : kind_(kind), rule_(rule), regions_(regions), formula_(formula), note_(note) {
    if (!formula || !*formula || !note) throw "a gradient states its formula";
    if (kind == Kind::kZero && !*note) throw "a zero gradient states why";
    if ((kind == Kind::kRule && !rule) || (kind == Kind::kRegions && !regions)) throw "a rule is missing";
  }

  Kind kind_;
  GradientFn rule_;
  RegionGradientFn regions_;
  const char *formula_, *note_;
};

struct OpDef {
  graph::ShapeFn shape;
  LowerFn lower;
  Gradient gradient;
};

#define STRIDEC_OP(id, ...) extern const OpDef def_##id;
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP

const OpDef& op_def(graph::OpKind kind);
const graph::ShapeTable& shape_table();

// Lowers the whole graph to a loop program: one nest per op over strided views.
loop::Program lower(const graph::Graph& graph);

}  // namespace stridec::ops
