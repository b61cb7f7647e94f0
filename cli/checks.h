// Validators of flag values for CLI11. They return error messages.
#pragma once

#include <string>

namespace stridec::cli {

// Returns "" if the text is a number above zero (zero or more), otherwise the error.
std::string above_zero(const std::string& text);
std::string zero_or_more(const std::string& text);

// Replaces "2GB" by its number of bytes and returns "", or returns the error.
std::string to_bytes(std::string& text);

}  // namespace stridec::cli
