// Inside of the symbolic integers: the table of nodes. Nothing outside this folder includes it.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/sym/expr.h"

namespace stridec::sym {

// The node as given, which must be in canonical form. Throws Error kOverBudget for an expression nested too
// deeply.
Expr intern(Op op, std::span<const Expr> args);
inline Expr intern(Op op, Expr a, Expr b) {
  const Expr args[] = {a, b};
  return intern(op, args);
}

}  // namespace stridec::sym
