// Compiles regular expressions to DFA tables: RE2's syntax, whole matches, over UTF-8 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stridec::ops {

// A DFA. State 0 is the start. Byte 0 (the padding of strings) leaves every state unchanged.
struct RegexTable {
  std::vector<int32_t> next;  // [states, 256]
  std::vector<char> accepts;  // [states]
  int64_t states() const { return static_cast<int64_t>(accepts.size()); }
};

// Supports literals, classes, groups, alternation, repetition, anchors, word boundaries, escapes (\d \w \s
// \xHH and their complements), (?i) for ASCII, and (?s). Throws Error for what RE2 rejects, and Error
// (unsupported) for Unicode classes and tables with more than kMaxRegexStates states.
inline constexpr int64_t kMaxRegexStates = 4096;
RegexTable compile_regex(const std::string& pattern);

}  // namespace stridec::ops
