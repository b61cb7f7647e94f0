#include "compiler/frontend/torchscript/lexer.h"

#include <charconv>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::torchscript {
namespace {

using Kind = Token::Kind;

constexpr size_t kDeepest = 200;  // indentation

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool in_name(char c) { return starts_name(c) || is_digit(c); }

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      if (at_line_start_ && depth_ == 0 && !indentation()) continue;
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '#') {
        skip_line();
      } else if (c == '\n') {
        newline();
      } else {
        token();
      }
    }
    if (!at_line_start_) add(Kind::kNewline);
    for (; indents_.size() > 1; indents_.pop_back()) add(Kind::kDedent);
    add(Kind::kEnd);
    return std::move(out_);
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    fail(ErrorKind::kMalformed, "bad-source", cat(what_, ", line ", line_, ": ", what));
  }
  Token& add(Kind kind) {
    Token t;
    t.kind = kind;
    t.line = line_;
    t.position = at_;
    out_.push_back(std::move(t));
    return out_.back();
  }
  void skip_line() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }
  void newline() {
    ++at_;
    if (depth_ == 0) {
      add(Kind::kNewline);
      at_line_start_ = true;
    }
    ++line_;
  }

  // False if the line is empty: it is skipped.
  bool indentation() {
    size_t end = at_;
    while (end < text_.size() && text_[end] == ' ') ++end;
    if (end == text_.size() || text_[end] == '\n' || text_[end] == '#' || text_[end] == '\r') {
      at_ = end;
      skip_line();
      if (at_ < text_.size()) ++at_;
      ++line_;
      return false;
    }
    const size_t width = end - at_;
    at_ = end;
    at_line_start_ = false;
    if (width > indents_.back()) {
      if (indents_.size() > kDeepest) bad("blocks are nested too deeply");
      indents_.push_back(width);
      add(Kind::kIndent);
    }
    for (; width < indents_.back(); indents_.pop_back()) add(Kind::kDedent);
    if (width != indents_.back()) bad("the indentation matches no block");
    return true;
  }

  void token() {
    const char c = text_[at_];
    if (starts_name(c)) {
      size_t end = at_;
      while (end < text_.size() && in_name(text_[end])) ++end;
      const std::string_view name = text_.substr(at_, end - at_);
      add(Kind::kName).text = std::string(name);
      at_ = end;
    } else if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      number();
    } else if (c == '"' || c == '\'') {
      string(c);
    } else {
      symbol();
    }
  }

  void number() {
    size_t end = at_;
    bool whole = true;
    while (end < text_.size()) {
      const char c = text_[end];
      const bool sign = (c == '+' || c == '-') && (text_[end - 1] == 'e' || text_[end - 1] == 'E');
      if (c == '.' || c == 'e' || c == 'E') whole = false;
      if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !sign) break;
      ++end;
    }
    const char *first = text_.data() + at_, *last = text_.data() + end;
    const bool imaginary = end < text_.size() && text_[end] == 'j';
    if (whole && !imaginary) {
      Token& t = add(Kind::kInteger);
      const auto [stop, error] = std::from_chars(first, last, t.integer);
      // The only number whose sign is needed to read it: the least integer.
      if (error == std::errc::result_out_of_range && text_.substr(at_, end - at_) == "9223372036854775808")
        t.integer = INT64_MIN;
      else if (error != std::errc() || stop != last)
        bad("a number is out of range");
    } else {
      Token& t = add(imaginary ? Kind::kImaginary : Kind::kFloat);
      const auto [stop, error] = std::from_chars(first, last, t.number);
      if (error != std::errc() || stop != last) bad("a number is not understood");
      if (imaginary) ++end;
    }
    at_ = end;
  }

  void string(char quote) {
    std::string content;
    const int first = line_;
    size_t i = at_ + 1;
    for (; i < text_.size() && text_[i] != quote; ++i) {
      if (text_[i] == '\n') ++line_;
      if (text_[i] != '\\') {
        content += text_[i];
        continue;
      }
      if (++i == text_.size()) break;
      i = escape(i, content);
    }
    if (i >= text_.size()) {
      line_ = first;
      bad("a string does not end");
    }
    Token& t = add(Kind::kString);
    t.text = std::move(content);
    at_ = i + 1;
  }
  // Of the character at i, after the backslash. The position of the escape's last character.
  size_t escape(size_t i, std::string& to) const {
    const char c = text_[i];
    constexpr std::string_view kLetters = "abfnrtv", kMeanings = "\a\b\f\n\r\t\v";
    if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
      to += kMeanings[at];
      return i;
    }
    const bool hex = c == 'x';
    if (!hex && (c < '0' || c > '7')) {
      to += c;
      return i;
    }
    const size_t from = hex ? i + 1 : i;
    unsigned value = 0;
    const size_t length = std::min<size_t>(hex ? 2 : 3, text_.size() - from);
    const auto [stop, error] =
        std::from_chars(text_.data() + from, text_.data() + from + length, value, hex ? 16 : 8);
    if (error != std::errc()) bad("an escape is not understood");
    to += static_cast<char>(value);
    return static_cast<size_t>(stop - text_.data()) - 1;
  }

  void symbol() {
    const char c = text_[at_];
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if (c == ')' || c == ']' || c == '}') {
      if (depth_ == 0) bad("a bracket closes nothing");
      --depth_;
    }
    const bool arrow = text_.substr(at_, 2) == "->";
    if (!arrow && std::string_view("()[]{}:,.=-+*@").find(c) == std::string_view::npos)
      bad(cat("the character with code ", static_cast<int>(static_cast<unsigned char>(c)),
              " is not allowed in the source of TorchScript"));
    add(Kind::kSymbol).text = arrow ? "->" : std::string(1, c);
    at_ += arrow ? 2 : 1;
  }

  std::string_view text_;
  const std::string& what_;
  size_t at_ = 0;
  int line_ = 1;
  size_t depth_ = 0;  // of brackets, in which lines and indentation mean nothing
  bool at_line_start_ = true;
  std::vector<size_t> indents_ = {0};
  std::vector<Token> out_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text, const std::string& what) {
  return Lexer(text, what).run();
}

}  // namespace stridec::torchscript
