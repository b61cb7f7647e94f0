#pragma once

#include <string>

namespace stridec::test {

// Every `from` in the text, which `to` may hold again.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace stridec::test
