// Python's arithmetic on sizes, floats and conditions of a program: "_operator.mul", "torch.sym_max".
#pragma once

#include <string_view>
#include <vector>

#include "compiler/frontend/aten/value.h"

namespace stridec::pt2 {

bool is_size_op(std::string_view target);
// Throws Error kUnsupported for values of kinds that it does not compute.
aten::Value size_op(graph::Builder& b, std::string_view target, const std::vector<aten::Value>& args);

}  // namespace stridec::pt2
