// Imports nodes of operators that the user declares (--ops), and describes nodes of unknown operators.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "compiler/frontend/onnx/import_context.h"
#include "compiler/graph/user_operators.h"

namespace stridec::onnx {

std::string user_name(const Node& node);  // "acme::Rotary", "ai.onnx::Gelu"

// Throws Error for inputs that are not tensors, and for attributes that are not numbers, texts or lists of
// numbers.
Outputs call_user(const graph::UserOperators& operators, Context& context);

// The type that `value_info` or an output of the graph declares for a value, if any. Dims without a name or
// value get symbols.
std::optional<graph::Type> declared_type(const Graph& graph, const std::string& name);

using TypeOf = std::function<std::optional<graph::Type>(const std::string& name)>;
graph::UnknownCall unknown_call(const Node& node, const TypeOf& type_of);

}  // namespace stridec::onnx
