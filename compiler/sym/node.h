// The intern table of symbolic integers; private to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/sym/expr.h"

namespace stridec::sym {

// Interns the node as given, which must be in canonical form. Throws Error kOverBudget if the expression is
// nested too deeply.
Expr intern(Op op, std::span<const Expr> args);
inline Expr intern(Op op, Expr a, Expr b) {
  const Expr args[] = {a, b};
  return intern(op, args);
}

}  // namespace stridec::sym
