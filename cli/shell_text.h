// Words of a command for a shell.
#pragma once

#include <string>

namespace stridec::cli {

// The word, in quotes where a shell would not take it as it is.
std::string shell_word(const std::string& text);

}  // namespace stridec::cli
