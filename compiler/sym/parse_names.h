// Spelling rules that the printer and the parser share.
#pragma once

#include <string_view>

namespace stridec::sym {

bool is_plain_name(std::string_view name);     // needs no backticks (after the '%' of a loop variable)
bool is_function_name(std::string_view name);  // followed by '(' it is a call

}  // namespace stridec::sym
