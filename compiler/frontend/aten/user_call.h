// Calls of operators of the user, and drafts of those that are not declared.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/aten/call.h"
#include "compiler/graph/user_operators.h"

namespace stridec::aten {

// `name` is "acme::swiglu". Throws Error for arguments that are neither tensors, numbers, texts nor lists of
// integers or of floats.
Results call_user(Builder& b, const graph::UserOperators& operators, const std::string& name,
                  const std::vector<NamedValue>& arguments, size_t outputs);

graph::UnknownCall unknown_call(Builder& b, const std::string& name,
                                const std::vector<NamedValue>& arguments);

}  // namespace stridec::aten
