// PyTorch's operators: chooses among the overloads of a name, and calls the operator tables of
// compiler/frontend/aten.
#pragma once

#include <string>

#include "compiler/frontend/torchscript/evaluator.h"

namespace stridec::torchscript {

// Whether some overload of the name has an import, or the user declares it.
bool is_supported(const Evaluator& e, const std::string& space, const std::string& name);

// Operators that are not supported are recorded once each, and give a failed value. Throws Error for
// arguments that no overload takes.
Value call_operator(Evaluator& e, const std::string& space, const std::string& name, Arguments arguments);

}  // namespace stridec::torchscript
