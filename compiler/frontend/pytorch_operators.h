// The operators that PyTorch programs may use, for `stridec ops --pytorch`.
#pragma once

#include <vector>

#include "compiler/frontend/common/operator_info.h"

namespace stridec::frontend {

// Sorted by name. `versions` are the supported overloads.
std::vector<OperatorInfo> pytorch_operators();

}  // namespace stridec::frontend
