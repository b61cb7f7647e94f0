// The inputs of a model as inputs of the graph, subject to what the command line says of them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/frontend/onnx/import.h"
#include "compiler/frontend/onnx/import_context.h"

namespace stridec::onnx {

using Slots = std::unordered_map<std::string, Slot>;

// Adds what each input stands for to `slots`, by its name. Inputs that are not supported are problems. Throws
// Error for flags that do not fit the model.
void import_inputs(const Model& model, const ImportOptions& options, Builder& builder,
                   std::vector<Diagnostic>& problems, Slots& slots);

}  // namespace stridec::onnx
