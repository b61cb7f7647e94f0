// What flags accept beyond their type: validators for CLI11, which print sentences.
#pragma once

#include <string>

namespace stridec::cli {

// "" where the text is a number above zero (zero or more), otherwise what is wrong with it.
std::string above_zero(const std::string& text);
std::string zero_or_more(const std::string& text);

}  // namespace stridec::cli
