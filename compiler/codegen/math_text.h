// Elementary functions as text: header-free, for scalars and vectors alike (see emit_snippets.h for the
// notation).
//
// Each is within 4.3 units in the last place of the exact value over the whole range, with the limits,
// infinities and NaNs of C's functions and results that may be subnormal. Results are rounded: where one ends
// with a product, that is not contracted with an addition behind the call. Methods: argument reduction in two
// or three parts (Cody and Waite), minimax polynomials; the constants are in math_text.cpp with their
// sources.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::codegen {

struct MathText {
  std::vector<std::string> needs;  // snippets
  std::string text;                // defines sd_<op>
};

// op: "exp", "erf", ...; type: "f32" or "f64". Nothing for a name that is no function here.
std::optional<MathText> math_text(std::string_view op, std::string_view type, int width);

}  // namespace stridec::codegen
