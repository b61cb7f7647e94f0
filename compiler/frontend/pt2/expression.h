// Parses the texts of sizes in a program: sympy's srepr ("Mul(Integer(2), Symbol('s0', integer=True))").
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/sym/expr.h"

namespace stridec::pt2 {

// The meaning of a symbol's name; none if it is not known.
using SymbolLookup = std::function<std::optional<sym::Expr>(const std::string& name)>;

// A number or a condition. None for text that is not an integer expression, that has an unknown symbol, or
// that uses a function without an integer meaning (floats, FloatPow). Text and nesting are limited, so
// hostile text costs little.
std::optional<sym::Expr> parse_expression(std::string_view text, const SymbolLookup& lookup);

}  // namespace stridec::pt2
