// Helpers for code that rewrites operands.
#pragma once

#include <optional>
#include <span>

#include "compiler/sym/expr.h"

namespace stridec::sym {

// The canonical expression of the operation with new operands; op is neither kConst nor kVar.
Expr rebuild(Op op, std::span<const Expr> args);

// Evaluates one of + * floordiv mod min max and the comparisons; nothing on overflow and division by zero.
std::optional<int64_t> apply(Op op, int64_t a, int64_t b);

}  // namespace stridec::sym
