// Patterns of names, as options take them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stridec {

// Whether the whole name matches the pattern, in which each `*` stands for any text.
bool matches_pattern(std::string_view pattern, std::string_view name);
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace stridec
