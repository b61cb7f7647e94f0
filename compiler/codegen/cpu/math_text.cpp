#include "compiler/codegen/cpu/math_text.h"

namespace stridec::codegen::cpu {

std::optional<MathText> math_text(std::string_view, std::string_view) { return std::nullopt; }

}  // namespace stridec::codegen::cpu
