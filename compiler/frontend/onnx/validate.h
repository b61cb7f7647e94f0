// Establishes the guarantees of model.h about names and order.
#pragma once

#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

// Checks single assignment and that every name read is defined, in all graphs. Sorts nodes topologically.
// Drops graph inputs that have an initializer (older models list every initializer as an input). Throws Error
// "duplicate-name", "undefined-name", "cyclic-graph" or "missing-type", naming the nodes.
void validate(Model& model);

}  // namespace stridec::onnx
