// Strides of views, which decide whether later operators copy: contiguous(), reshape(), to().
#pragma once

#include <vector>

#include "compiler/frontend/aten/call.h"

namespace stridec::torchscript {

// Notes the strides that PyTorch gives to the results of an operator that makes a view.
void note_layout(aten::Builder& b, const aten::Schema& schema, const std::vector<aten::NamedValue>& given,
                 std::vector<aten::Value>& results);

}  // namespace stridec::torchscript
