#include "compiler/extend/rule_tokens.h"

#include <cctype>

namespace stridec::extend {
namespace {

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  std::vector<RuleToken> tokens() {
    std::vector<RuleToken> all;
    do all.push_back(next());
    while (all.back().kind != RuleToken::Kind::kEnd);
    return all;
  }

 private:
  Position here() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '\n') {
        ++line_;
        line_begin_ = ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  RuleToken next() {
    skip_space();
    RuleToken token{.at = here(), .begin = at_};
    if (at_ >= text_.size()) {
      token.end = at_;
      return token;
    }
    const char c = peek();
    if (starts_rule_name(c)) {
      token.kind = RuleToken::Kind::kName;
      while (in_name(peek()) || (peek() == '.' && starts_rule_name(peek(1)))) token.text += text_[at_++];
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      token.kind = RuleToken::Kind::kNumber;
      number(token.text);
    } else if (c == '"') {
      token.kind = RuleToken::Kind::kText;
      quoted(token);
    } else {
      token.kind = RuleToken::Kind::kSign;
      sign(token);
    }
    token.end = at_;
    return token;
  }

  void number(std::string& out) {
    const auto digits = [&] {
      while (std::isdigit(static_cast<unsigned char>(peek()))) out += text_[at_++];
    };
    digits();
    if (peek() == '.' && std::isdigit(static_cast<unsigned char>(peek(1)))) out += text_[at_++], digits();
    const bool exponent = peek() == 'e' || peek() == 'E';
    const size_t sign = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
    if (exponent && std::isdigit(static_cast<unsigned char>(peek(sign)))) {
      out.append(text_.substr(at_, sign));
      at_ += sign;
      digits();
    }
  }

  void quoted(RuleToken& token) {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      token.text += text_[at_++];
    }
    if (peek() != '"') rule_error(text_, path_, token.at, "a text has no closing quote");
    ++at_;
  }

  void sign(RuleToken& token) {
    static constexpr std::string_view kSigns[] = {"...", "=>", "==", "!=", "<=", ">=", "&&", "||"};
    for (const std::string_view each : kSigns)
      if (text_.substr(at_).starts_with(each)) {
        token.text = each;
        at_ += each.size();
        return;
      }
    if (std::string_view("+-*/%<>=()[]{},;:~.").find(text_[at_]) == std::string_view::npos)
      rule_error(text_, path_, token.at, "a character that rules do not have");
    token.text = text_[at_++];
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0, line_begin_ = 0;
  int line_ = 1;
};

}  // namespace

bool starts_rule_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }

std::vector<RuleToken> rule_tokens(std::string_view text, const std::string& path) {
  return Lexer(text, path).tokens();
}

}  // namespace stridec::extend
