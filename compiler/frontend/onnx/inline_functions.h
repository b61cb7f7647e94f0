// Model-local functions: calls become the nodes of the body.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/onnx/model.h"

namespace stridec::onnx {

inline constexpr uint64_t kMaxNodes = 400'000;

// Replaces every call, also inside subgraphs and bodies, and empties model.functions. Sets the version of
// every node from the opset imports of the model or of the function that it comes from. Throws Error for
// recursive functions, calls with too many inputs or outputs, and models that grow beyond kMaxNodes.
void inline_functions(Model& model);

// One call: the body's nodes with inputs, outputs and attributes of `call`, other names prefixed by `prefix`.
std::vector<Node> instantiate(const Function& function, const Node& call, const std::string& prefix);

}  // namespace stridec::onnx
