// The text form of symbolic integers: printing, parsing, and C++ code for generated programs.
//
//   expr    := or
//   or      := and { "||" and }            and  := not { "&&" not }         not := "!" not | cmp
//   cmp     := sum [ ("=="|"!="|"<"|"<="|">"|">=") sum ]
//   sum     := product { ("+"|"-") product }
//   product := unary { ("*"|"//") unary }                                  // is floordiv
//   unary   := "-" unary | atom
//   atom    := integer | name | "%"name | "`" any text, ` doubled "`" | "(" expr ")"
//            | mod(a,b) | min(a,...) | max(a,...) | select(c,a,b) | floordiv(a,b) | ceildiv(a,b) |
//            align_up(a,b) | abs(a)
//
// A name is [A-Za-z_][A-Za-z0-9_.]*; other symbols, and symbols named like a function, are written in
// backticks.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "compiler/sym/expr.h"
#include "compiler/sym/facts.h"

namespace stridec::sym {

std::string to_string(Expr e);             // parse(to_string(e)) == e
std::string to_string(Interval interval);  // "1..64", "0..", "..7", "any"
std::ostream& operator<<(std::ostream& out, Expr e);

// Throws Error kMalformed, code "bad-expression", with the column. Safe on hostile text: depth and size are
// limited.
Expr parse(std::string_view text);

// A C++ expression of type int64_t. `name` gives the spelling of a variable; variables and literals are
// converted to int64_t. Division and remainder are plain / and % if facts show that truncation and flooring
// agree, otherwise calls of sd_floordiv and sd_mod; minima and maxima are calls of sd_min and sd_max. See
// c_helpers().
std::string to_c(Expr e, const std::function<std::string(Expr)>& name, const Facts& facts);
std::string to_c(Expr e, const std::function<std::string(Expr)>& name);

// Definitions of the helper functions: `static inline`, valid in C and C++, no header needed but for int64_t.
// Quotients and remainders by zero are 0, so that generated code does not trap.
std::string_view c_helpers();

// The same expression with sums and products as calls of sd_add and sd_mul, which set the caller's variable
// `int32_t overflow` to 1 if a result does not fit in 64 bits. checked_c_helpers() defines them, for clang
// and gcc.
std::string to_checked_c(Expr e, const std::function<std::string(Expr)>& name, const Facts& facts);
std::string_view checked_c_helpers();

}  // namespace stridec::sym
