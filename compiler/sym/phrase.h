// Conditions phrased for messages.
#pragma once

#include <optional>
#include <string>

#include "compiler/sym/expr.h"

namespace stridec::sym {

// "sequence <= 512", "h8 >= 1", "sequence is a multiple of 8", "past == other and rows >= 2": the constant
// comes last. A condition on the remainder of one variable says which: "(h + 15)//16 == 2*((h + 31)//32)" is
// "h is a multiple of 32, or 17..31 more than one".
std::string phrase(Expr condition);

// The variable of a condition that bounds one variable by a constant or states its divisor.
std::optional<Expr> bounded_variable(Expr condition);

}  // namespace stridec::sym
