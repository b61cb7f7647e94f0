// Complex numbers: pairs in the last dim of a real tensor.
#pragma once

#include "compiler/frontend/aten/complex_value.h"
#include "compiler/frontend/aten/context.h"

namespace stridec::aten {

enum class ComplexOp { kAdd, kSub, kMul, kDiv };
// Arithmetic where at least one operand is complex.
Results complex_arithmetic(Context& c, ComplexOp op);

}  // namespace stridec::aten
