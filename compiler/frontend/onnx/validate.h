// The guarantees about names and order that model.h states.
#pragma once

#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

// Checks single assignment and that every name read is defined, in all graphs; sorts nodes that come before
// what they read; drops graph inputs that have an initializer (older models list every initializer as an
// input). Throws Error "duplicate-name", "undefined-name", "cyclic-graph" or "missing-type", naming the
// nodes.
void validate(Model& model);

}  // namespace stridec::onnx
