// Reverse-mode differentiation over the primitives: the walk that applies the operators' gradient facets, and
// helpers that the facets share.
#pragma once

#include <vector>

#include "compiler/ops/op_table.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

// Gradients of the sum of y's elements with respect to each of xs. The walk stops at xs. New nodes are added
// at the builder's current position. Throws Error (kUnsupported), naming the primitive, if a gradient would
// pass through a primitive without one. The Builder folds constants, so a constant among xs is not
// distinguished from other constants of its value: differentiate with respect to inputs or parameters.
std::vector<graph::ValueId> gradients(graph::Builder& builder, graph::ValueId y,
                                      const std::vector<graph::ValueId>& xs);

// Computes y with `to[i]` substituted for `from[i]` (of the same type), at the builder's current position.
graph::ValueId replay(graph::Builder& builder, graph::ValueId y, const std::vector<graph::ValueId>& from,
                      const std::vector<graph::ValueId>& to);

// ---- helpers of the facets

using Ids = std::vector<graph::ValueId>;

// Zero gradients, for piecewise constant functions and for results that are not numeric: comparisons,
// rounding, indices.
Ids flat_gradient(graph::Builder& builder, const graph::Node& node, const Ids& output_gradients);
// Reverses a broadcast: sums the dims of `gradient` that broadcasting from `shape` had repeated.
Term sum_to(Term gradient, const graph::Shape& shape);
[[noreturn]] void no_gradient(const graph::Node& node, const std::string& why);

}  // namespace stridec::ops
