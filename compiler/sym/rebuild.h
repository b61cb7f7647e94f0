// For code that rewrites operands.
#pragma once

#include <span>

#include "compiler/sym/expr.h"

namespace stridec::sym {

// The canonical expression of an operation over new operands; op is neither kConst nor kVar.
Expr rebuild(Op op, std::span<const Expr> args);

}  // namespace stridec::sym
