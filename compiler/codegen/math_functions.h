// The texts of elementary functions, from which math_text() makes those of one type and width.
//
// Notation: see emit_snippets.h; here also
//   $F $I $U     the float, and the signed and unsigned integers of its size
//   $x           the suffix of its literals ("f" or "")
//   $C(e, t@)    e converted to t, lane by lane
//   $P(x, a, b)  the polynomial a + x * b
//   $NAME        a constant of math_text.cpp
// Polynomials are interpolated at Chebyshev points with 50 digits and rounded (tests/fit_polynomials.py); a
// comment at each states what it approximates. The splits of ln 2 and pi/2 have enough trailing zeros for
// exact multiplication by the integers that occur.
#pragma once

#include <span>
#include <string_view>

namespace stridec::codegen {

struct MathFunction {
  std::string_view name;
  std::string_view type;   // "f32", "f64", or "" for both
  std::string_view needs;  // names of snippets, separated by spaces; without a type: those of the same type
  std::string_view text;
};

std::span<const MathFunction> exponential_functions();
std::span<const MathFunction> trigonometric_functions();

}  // namespace stridec::codegen
