// Inlines model-local functions: replaces each call by the nodes of the body.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

inline constexpr uint64_t kMaxNodes = 400'000;

// Inlines every call, also in subgraphs and function bodies, and empties model.functions. Sets each node's
// version from the opset imports of the model or function it comes from. Throws Error for recursive
// functions, calls with too many inputs or outputs, and models that grow beyond kMaxNodes.
void inline_functions(Model& model);

// Expands one call: the body's nodes with the inputs, outputs and attributes of `call`; `prefix` is added to
// other names.
std::vector<Node> instantiate(const Function& function, const Node& call, const std::string& prefix);

}  // namespace stridec::onnx
