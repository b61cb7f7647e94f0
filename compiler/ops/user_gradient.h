// Gradients that the user declares for an operator (--ops).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/graph/builder.h"

namespace stridec::ops {

// The gradients of xs, given the operator's results ys and their gradients gs, of which one that is not
// needed is invalid. An invalid result is zero. Throws Error.
using UserGradient = std::function<std::vector<graph::ValueId>(
    graph::Builder& builder, const std::vector<graph::ValueId>& xs, const std::vector<graph::ValueId>& ys,
    const std::vector<graph::ValueId>& gs)>;

// Marks the results of an operator: the marked values have this gradient, whatever computes ys. `key` names
// the gradient; those of one key are one. Thread-safe.
std::vector<graph::ValueId> with_gradient(graph::Builder& builder, const std::vector<graph::ValueId>& ys,
                                          const std::vector<graph::ValueId>& xs, const std::string& key,
                                          UserGradient gradient);

}  // namespace stridec::ops
