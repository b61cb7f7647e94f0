// Values of the evaluator as operands of PyTorch's operators, and back.
#pragma once

#include <string>

#include "compiler/frontend/torchscript/value.h"

namespace stridec::torchscript {

// Throws Error for values that no operator takes: dicts, objects.
aten::Value to_aten(aten::Builder& b, const Value& value);
Value from_aten(const aten::Value& value);

aten::Value other_value(std::string text);  // a layout, memory format or device
// Numbers as the sources write them (element_type.h).
aten::Value dtype_value(sym::Expr number);
aten::Value memory_format_value(sym::Expr number);

}  // namespace stridec::torchscript
