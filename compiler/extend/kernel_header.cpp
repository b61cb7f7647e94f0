#include "compiler/extend/kernel_header.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "compiler/base/text.h"

namespace stridec::extend {
namespace {

struct Token {
  std::string text;
  bool word = false;
  Position at;
};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Words and single signs, without comments, literals and lines of the preprocessor.
class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) {}

  std::vector<Token> all() {
    std::vector<Token> out;
    bool line_begins = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const Position at{line_, static_cast<int>(at_ - line_begin_) + 1};
      if (c == '\n') {
        line_begins = true;
        step();
      } else if (std::isspace(static_cast<unsigned char>(c))) {
        step();
      } else if (text_.compare(at_, 2, "//") == 0) {
        while (at_ < text_.size() && text_[at_] != '\n') step();
      } else if (text_.compare(at_, 2, "/*") == 0) {
        step(), step();
        while (at_ < text_.size() && text_.compare(at_, 2, "*/") != 0) step();
        step(), step();
      } else if (c == '#' && line_begins) {
        for (; at_ < text_.size() && text_[at_] != '\n'; step())
          if (text_[at_] == '\\') step();
      } else if (c == '"' || c == '\'') {
        for (step(); at_ < text_.size() && text_[at_] != c; step())
          if (text_[at_] == '\\') step();
        step();
        out.push_back({"\"", false, at});
      } else {
        Token token{{}, in_word(c), at};
        do {
          token.text += text_[at_];
          step();
        } while (token.word && at_ < text_.size() && in_word(text_[at_]));
        out.push_back(std::move(token));
        line_begins = false;
      }
    }
    return out;
  }

 private:
  void step() {
    if (at_ >= text_.size()) return;
    if (text_[at_] == '\n') ++line_, line_begin_ = at_ + 1;
    ++at_;
  }

  const std::string& text_;
  size_t at_ = 0, line_begin_ = 0;
  int line_ = 1;
};

// The position after the bracket that closes the one at `at`.
std::optional<size_t> after_bracket(const std::vector<Token>& tokens, size_t at) {
  int depth = 0;
  for (; at < tokens.size(); ++at) {
    const std::string& t = tokens[at].text;
    if (t == "(" || t == "[" || t == "{") ++depth;
    if (t == ")" || t == "]" || t == "}") --depth;
    if (depth == 0) return at + 1;
  }
  return std::nullopt;
}

}  // namespace

KernelHeader parse_kernel_header(const std::string& text, const std::string& place) {
  const std::vector<Token> tokens = Scanner(text).all();
  const auto is = [&](size_t at, const char* sign) { return at < tokens.size() && tokens[at].text == sign; };
  std::optional<size_t> found;  // the function's name
  size_t begins = 0, found_begins = 0;
  for (size_t at = 0; at < tokens.size();) {
    const bool opens = is(at, "(") || is(at, "[") || is(at, "{");
    if (!opens) {
      if (is(at, ";")) begins = at + 1;
      ++at;
      continue;
    }
    const auto end = after_bracket(tokens, at);
    if (!end) rule_error(text, place, tokens[at].at, cat("no bracket closes this '", tokens[at].text, "'"));
    if (is(at, "(") && at > begins && tokens[at - 1].word && tokens[at - 1].text != "__attribute__") {
      // Attributes may follow the parameters.
      size_t body = *end;
      while (is(body, "__attribute__") && is(body + 1, "("))
        body = after_bracket(tokens, body + 1).value_or(tokens.size());
      if (is(body, "{")) found = at - 1, found_begins = begins;
    }
    if (is(at, "{")) begins = *end;
    at = *end;
  }
  if (!found) rule_error(text, place, {1, 1}, "the text defines no function");

  KernelHeader made{.function = tokens[*found].text, .result = {}, .at = tokens[*found].at, .parameters = {}};
  for (size_t i = found_begins; i < *found; ++i)
    made.result += cat(i == found_begins ? "" : " ", tokens[i].text);
  const size_t last = *after_bracket(tokens, *found + 1) - 1;
  size_t first = *found + 2;
  if (last == first || (last == first + 1 && is(first, "void"))) return made;
  while (first <= last) {
    size_t end = first;
    while (end < last && !is(end, ","))
      end = is(end, "(") || is(end, "[") ? *after_bracket(tokens, end) : end + 1;
    size_t name_end = first;  // before the brackets of an array
    while (name_end < end && !is(name_end, "[")) ++name_end;
    const size_t name = name_end - 1;
    if (name_end < first + 2 || !tokens[name].word)
      rule_error(text, place, tokens[std::min(first, last)].at, "a parameter must have a type and a name");
    made.parameters.push_back({tokens[name].text, tokens[name].at});
    first = end + 1;
  }
  return made;
}

}  // namespace stridec::extend
