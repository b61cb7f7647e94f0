// An index as a digit of an index variable, as reshapes leave it.
#pragma once

#include <optional>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::schedule {

// mod(var // place, size).
struct Digit {
  sym::Expr var, place, size;
  sym::Expr value;  // for the caller
};

// The digit that mod(var // place, size), var // place, mod(var, size) or var stands for, where `var` is one
// of `dims`; nothing for other expressions.
std::optional<Digit> digit_of(sym::Expr e, const std::vector<loop::Dim>& dims);

}  // namespace stridec::schedule
