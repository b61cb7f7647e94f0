// Small helpers for building text.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace stridec {

// Concatenates anything that has operator<<.
template <class... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// "a, b, c" of f(item) for each item.
template <class Range, class F>
std::string join(const Range& items, std::string_view separator, F&& f) {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += separator;
    first = false;
    out += f(item);
  }
  return out;
}

inline std::string join(const std::vector<std::string>& items, std::string_view separator) {
  return join(items, separator, [](const std::string& s) { return s; });
}

}  // namespace stridec
