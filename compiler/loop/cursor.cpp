#include "compiler/loop/cursor.h"

#include <charconv>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/loop/quote.h"
#include "compiler/sym/text.h"

namespace stridec::loop {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

// The position after the backquoted symbol at `at`, or npos.
size_t after_backticks(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at)
    if (text[at] == '`') {
      if (at + 1 == text.size() || text[at + 1] != '`') return at + 1;
      ++at;
    }
  return std::string_view::npos;
}

// The position after the bracket that closes the one at `at`, or npos.
size_t after_brackets(std::string_view text, size_t at) {
  for (int depth = 0; at < text.size();) {
    char c = text[at];
    if (c == '`') {
      at = after_backticks(text, at);
      continue;
    }
    ++at;
    depth += (c == '(') - (c == ')');
    if (depth == 0) return at;
  }
  return std::string_view::npos;
}

// The position after an operand (a number, a name, a call, brackets), or npos.
size_t after_operand(std::string_view text, size_t at) {
  if (at >= text.size()) return std::string_view::npos;
  char c = text[at];
  if (c == '(') return after_brackets(text, at);
  if (c == '`') return after_backticks(text, at);
  if (c == '%') ++at;
  size_t begin = at;
  while (at < text.size() && is_name(text[at])) ++at;
  if (at == begin) return std::string_view::npos;
  if (at < text.size() && text[at] == '(' && is_letter(text[begin])) return after_brackets(text, at);
  return at;
}

size_t operator_length(std::string_view rest) {
  for (std::string_view two : {"||", "&&", "==", "!=", "<=", ">=", "//"})
    if (rest.starts_with(two)) return 2;
  return !rest.empty() && std::string_view("+-*<>").find(rest[0]) != std::string_view::npos ? 1 : 0;
}

}  // namespace

void Cursor::fail(const std::string& message) const {
  stridec::fail(ErrorKind::kMalformed, "bad-program",
                cat("line ", number_, ", column ", indent_ + at_ + 1, ": ", message));
}

void Cursor::skip_spaces() {
  while (at_ < line_.size() && line_[at_] == ' ') ++at_;
}

bool Cursor::done() {
  skip_spaces();
  return at_ == line_.size();
}

bool Cursor::accept(std::string_view token) {
  skip_spaces();
  if (!line_.substr(at_).starts_with(token)) return false;
  size_t end = at_ + token.size();
  if (is_letter(token.back()) && end < line_.size() && is_name(line_[end])) return false;
  at_ = end;
  return true;
}

void Cursor::expect(std::string_view token) {
  if (!accept(token)) fail(cat("expected '", token, "'"));
}

std::string Cursor::word() {
  skip_spaces();
  size_t begin = at_;
  while (at_ < line_.size() && (is_name(line_[at_]) || line_[at_] == '+')) ++at_;
  std::string out(line_.substr(begin, at_ - begin));
  if (!is_plain_name(out)) fail("expected a name");
  return out;
}

std::string Cursor::name() {
  skip_spaces();
  return at_ < line_.size() && line_[at_] == '"' ? string() : word();
}

std::string Cursor::string() {
  expect("\"");
  std::string out;
  for (; at_ < line_.size() && line_[at_] != '"'; ++at_) {
    if (line_[at_] != '\\') {
      out += line_[at_];
      continue;
    }
    if (++at_ == line_.size()) break;
    char c = line_[at_];
    if (c == 'n') {
      out += '\n';
    } else if (c == 'x') {
      unsigned value = 0;
      auto digits = line_.substr(at_ + 1, 2);
      auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (digits.size() != 2 || end.ptr != digits.data() + 2) fail("expected two hexadecimal digits");
      out += static_cast<char>(value);
      at_ += 2;
    } else {
      out += c;
    }
  }
  if (at_ == line_.size()) fail("expected a closing quote");
  ++at_;
  return out;
}

int64_t Cursor::integer() {
  skip_spaces();
  int64_t value = 0;
  auto [end, error] = std::from_chars(line_.data() + at_, line_.data() + line_.size(), value);
  if (error != std::errc()) fail("expected an integer");
  at_ = static_cast<size_t>(end - line_.data());
  return value;
}

std::string_view Cursor::rest() {
  skip_spaces();
  std::string_view out = line_.substr(at_);
  at_ = line_.size();
  return out;
}

std::string_view Cursor::to_space() {
  skip_spaces();
  const std::string_view out = line_.substr(at_).substr(0, line_.substr(at_).find(' '));
  at_ += out.size();
  return out;
}

// Reads operands and operators alternately; an operand that is not followed by an operator ends the
// expression.
sym::Expr Cursor::expr() {
  skip_spaces();
  size_t begin = at_, end = at_;
  for (;;) {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '-' || line_[at_] == '!')) ++at_;
    size_t after = after_operand(line_, at_);
    if (after == std::string_view::npos) fail("expected an expression");
    at_ = end = after;
    skip_spaces();
    size_t length = operator_length(line_.substr(at_));
    if (length == 0) break;
    at_ += length;
  }
  at_ = end;
  return sym::parse(line_.substr(begin, end - begin));
}

sym::Expr Cursor::variable() {
  skip_spaces();
  size_t begin = at_;
  size_t end = after_operand(line_, at_);
  if (end == std::string_view::npos) fail("expected a variable");
  sym::Expr out = sym::parse(line_.substr(begin, end - begin));
  if (!out.is_var()) fail("expected a variable");
  at_ = end;
  return out;
}

std::vector<sym::Expr> Cursor::expr_list() {
  std::vector<sym::Expr> out;
  expect("[");
  if (accept("]")) return out;
  do out.push_back(expr());
  while (accept(","));
  expect("]");
  return out;
}

ValueId Cursor::value() {
  expect("%");
  if (at_ == line_.size() || !is_digit(line_[at_])) fail("expected the number of a value");
  int64_t id = integer();
  if (id > INT32_MAX) fail("no such value");
  return ValueId(id);
}

}  // namespace stridec::loop
