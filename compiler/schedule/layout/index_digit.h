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

// The digits of an index, the lowest first, each times the sizes of those below it: 7 * y + x has the digits
// x and y if x is below 7. `value` is the digit's value in terms of `at`, which stands for the index. Empty
// if the index has another form, or does not cover the whole dim of size `extent`.
std::vector<Digit> digits_of(sym::Expr index, sym::Expr at, sym::Expr extent,
                             const std::vector<loop::Dim>& dims, const sym::Facts& facts);

}  // namespace stridec::schedule
