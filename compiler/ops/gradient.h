// Reverse-mode differentiation over the primitives: the walk that applies the operators' gradient facets, and
// helpers that the facets share.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/ops/op_table.h"
#include "compiler/ops/term.h"

namespace stridec::ops {

using Ids = std::vector<graph::ValueId>;

// Gradients of the sum of y's elements with respect to each of xs. The walk stops at xs. New nodes are added
// at the builder's current position. Throws Error (kUnsupported) that names every operator without a gradient
// through which a gradient would pass. The Builder folds constants, so a constant among xs is not
// distinguished from other constants of its value: differentiate with respect to inputs or parameters.
std::vector<graph::ValueId> gradients(graph::Builder& builder, graph::ValueId y,
                                      const std::vector<graph::ValueId>& xs);

// The same for the weighted sum of several ys: cotangents[i] has the type of ys[i]. An invalid id in the
// result means that no gradient reaches xs[i].
Ids pull_back(graph::Builder& builder, const Ids& ys, const Ids& cotangents, const Ids& xs);

// Everything that prevents gradients of a loss y in the xs.
struct MissingGradients {
  struct Unreached {
    graph::ValueId x;
    std::string why;
  };
  std::vector<Diagnostic> operators;  // without a gradient, between xs and y
  std::vector<Unreached> unreached;   // xs to which no gradient flows
};
// Works on a copy of the graph.
MissingGradients missing_gradients(const graph::Graph& graph, graph::ValueId y, const Ids& xs);

// The walk. Rules of control flow continue it inside their regions.
class Backward {
 public:
  explicit Backward(graph::Builder& builder) : builder_(builder) {}

  graph::Builder& builder() { return builder_; }
  // As the function above, but a missing gradient is recorded and counts as zero.
  Ids pull_back(const Ids& ys, const Ids& cotangents, const Ids& xs);
  const std::vector<Diagnostic>& obstacles() const { return obstacles_; }

 private:
  Ids apply(const graph::Node& node, const Ids& outputs, const Ids& wanted);

  graph::Builder& builder_;
  std::vector<Diagnostic> obstacles_;
};

// The values of the enclosing regions that the node's regions read, each once.
Ids captured(const graph::Graph& graph, const graph::Node& node);

// The floats through which gradients flow to xs: xs, and the outputs of those of `nodes` (in creation order)
// that have such a source and a gradient that is not zero.
std::unordered_set<graph::ValueId> dependent(const graph::Graph& graph,
                                             const std::vector<graph::NodeId>& nodes, const Ids& xs);

// ---- helpers of the facets

// Reverses a broadcast: sums the dims of `gradient` that broadcasting from `shape` had repeated.
Term sum_to(Term gradient, const graph::Shape& shape);
[[noreturn]] void no_gradient(const graph::Node& node, const std::string& why);
// The gradients of a node that computes the same as `y`, an expression of other primitives in its inputs.
Ids gradient_through(graph::Builder& builder, const graph::Node& node, graph::ValueId y, graph::ValueId g);

}  // namespace stridec::ops
