// Quoting of names and sentences in the text of programs.
#pragma once

#include <string>
#include <string_view>

namespace stridec::loop {

std::string quoted(std::string_view text);       // "..." with \" \\ \n \xHH
bool is_plain_name(std::string_view name);       // [A-Za-z_][A-Za-z0-9_.+]*
std::string quoted_name(std::string_view name);  // unchanged if plain

}  // namespace stridec::loop
