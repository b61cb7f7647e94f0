#include "cli/shell_text.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "compiler/base/text.h"

namespace stridec::cli {

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-./=,:+").find(c) != std::string_view::npos;
  });
  return plain ? text : cat("'", replaced(text, "'", "'\\''"), "'");
}

}  // namespace stridec::cli
