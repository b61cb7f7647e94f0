// Tokens of TorchScript's serialised sources, whose blocks are indented as in Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::torchscript {

struct Token {
  enum class Kind : uint8_t {
    kName,
    kInteger,
    kFloat,
    kImaginary,
    kString,
    kSymbol,
    kNewline,
    kIndent,
    kDedent,
    kEnd
  };
  Kind kind = Kind::kEnd;
  int line = 0;
  size_t position = 0;  // in the text, in bytes
  std::string text;     // of a string without quotes and escapes
  int64_t integer = 0;
  double number = 0;
};

// Throws Error kMalformed for text that is not such source. `what` names it in messages.
std::vector<Token> tokens_of(std::string_view text, const std::string& what);

}  // namespace stridec::torchscript
