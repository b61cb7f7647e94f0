// A lexer for one line of a program's text.
#pragma once

#include <string>
#include <string_view>

#include "compiler/loop/program.h"

namespace stridec::loop {

class Cursor {
 public:
  Cursor(std::string_view line, int number, size_t indent) : line_(line), number_(number), indent_(indent) {}

  [[noreturn]] void fail(const std::string& message) const;  // the message names the line and the column

  void skip_spaces();
  bool done();
  bool accept(std::string_view token);  // a word token must not be followed by a letter or digit
  void expect(std::string_view token);
  std::string word();    // [A-Za-z_][A-Za-z0-9_.+]*
  std::string name();    // a word or a quoted string
  std::string string();  // quoted
  int64_t integer();
  std::string_view rest();      // up to the end of the line
  std::string_view to_space();  // up to a space or the end of the line

  // Reads an expression. It ends at a comma, a closing bracket, a quote, a single ':' or '=', or one of the
  // words if, else, on, into, in, wrap, error, clamp, skip outside brackets.
  sym::Expr expr();
  sym::Expr variable();                // a symbol or an index variable
  std::vector<sym::Expr> expr_list();  // [a, b]
  ValueId value();                     // %12

 private:
  std::string_view line_;
  size_t at_ = 0;
  int number_;
  size_t indent_;  // columns before `line`, for messages
};

}  // namespace stridec::loop
