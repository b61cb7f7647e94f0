// Regular expressions as tables: RE2's syntax for whole matches, over the bytes of UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stridec::onnx {

// State 0 is the start. Byte 0 (the padding of strings) leaves every state as it is.
struct RegexTable {
  std::vector<int32_t> next;  // [states, 256]
  std::vector<char> accepts;  // [states]
  int64_t states() const { return static_cast<int64_t>(accepts.size()); }
};

// Literals, classes, groups, alternation, repetition, anchors, word boundaries, escapes (\d \w \s \xHH and
// their complements), (?i) for ASCII and (?s). Throws Error for what RE2 refuses, and (unsupported) for
// Unicode classes and tables above kMaxRegexStates states.
inline constexpr int64_t kMaxRegexStates = 4096;
RegexTable compile_regex(const std::string& pattern);

}  // namespace stridec::onnx
