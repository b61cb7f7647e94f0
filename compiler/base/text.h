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

// Concatenates f(item) for each item, with the separator between them: "a, b, c".
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

// Replaces every `from` in the text by `to`. `to` may contain `from`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace stridec
