// Reads a list of tokens from first to last: what the parsers of rules and of C have in common.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace stridec::extend {

// A Token has a text and a kind, among them Kind::kName, Kind::kSign and, last of all tokens, Kind::kEnd.
template <class Token>
class TokenReader {
 protected:
  TokenReader() = default;
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& token() const { return tokens_[at_]; }
  // Whether the next token is this name or sign, not a text that looks like it.
  bool is(std::string_view text) const {
    return (token().kind == Token::Kind::kName || token().kind == Token::Kind::kSign) && token().text == text;
  }
  bool accept(std::string_view text) {
    if (!is(text)) return false;
    ++at_;
    return true;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace stridec::extend
