// Elementary functions as text: header-free, for scalars and vectors (emit_snippets.h has the notation).
//
// Each result is within 4.3 units in the last place of the exact value over the whole range, with the limits,
// infinities and NaNs of C's functions; results may be subnormal. Results are rounded: a final multiplication
// is not contracted with an addition that follows the call. Methods: argument reduction in two or three parts
// (Cody and Waite), polynomials interpolated at Chebyshev points. math_functions.h has the notation of the
// texts, math_text.cpp the constants with their sources.
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

// op: "exp", "erf", ...; type: "f32" or "f64". Nothing if the name is not a function here.
std::optional<MathText> math_text(std::string_view op, std::string_view type, int width);

}  // namespace stridec::codegen
