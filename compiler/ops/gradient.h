// Reverse mode over the primitives: what the gradient facets of the operators share, and the walk that applies
// them.
#pragma once

#include <vector>

#include "compiler/ops/op_table.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

// Of the sum of y's elements with respect to each of xs, beyond which the walk does not go. New nodes come where
// the builder stands. Throws Error (kUnsupported) that names the primitive where a gradient would go through one
// that has none. The Builder folds constants away: a constant among xs is another name for its number, so what
// is differentiated has to be built from inputs or parameters.
std::vector<graph::ValueId> gradients(graph::Builder& builder, graph::ValueId y,
                                      const std::vector<graph::ValueId>& xs);

// y as it would be with `to[i]`, of the same type, in the place of `from[i]`, made where the builder stands.
graph::ValueId replay(graph::Builder& builder, graph::ValueId y, const std::vector<graph::ValueId>& from,
                      const std::vector<graph::ValueId>& to);

// ---- for the facets

using Ids = std::vector<graph::ValueId>;

// Piecewise constant, or not a function of numbers: comparisons, rounding, indices.
Ids flat_gradient(graph::Builder& builder, const graph::Node& node, const Ids& output_gradients);
// What broadcasting to the shape of `gradient` has repeated is summed again.
Term sum_to(Term gradient, const graph::Shape& shape);
[[noreturn]] void no_gradient(const graph::Node& node, const std::string& why);

}  // namespace stridec::ops
