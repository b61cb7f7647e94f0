// Symbols that passes and lowering add to a program.
#pragma once

#include <string>

#include "compiler/loop/program.h"

namespace stridec::loop {

// Adds a symbol within lower..upper, called `hint` or, if the program has that name, `hint..N`. `next` counts
// the numbers given.
sym::Expr fresh_symbol(Program& program, const std::string& hint, sym::Expr lower, sym::Expr upper,
                       int& next);

}  // namespace stridec::loop
