// What the printer and the parser agree on.
#pragma once

#include <string_view>

namespace stridec::sym {

bool is_plain_name(std::string_view name);     // stands without backticks (after the '%' of a loop variable)
bool is_function_name(std::string_view name);  // followed by '(' it is a call

}  // namespace stridec::sym
