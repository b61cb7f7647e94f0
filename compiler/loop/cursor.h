// Reading one line of a program's text.
#pragma once

#include <string>
#include <string_view>

#include "compiler/loop/program.h"

namespace stridec::loop {

class Cursor {
 public:
  Cursor(std::string_view line, int number, size_t indent) : line_(line), number_(number), indent_(indent) {}

  [[noreturn]] void fail(const std::string& message) const;  // names the line and the column

  void skip_spaces();
  bool done();
  bool accept(std::string_view token);  // a word is followed by no letter or digit
  void expect(std::string_view token);
  std::string word();    // [A-Za-z_][A-Za-z0-9_.+]*
  std::string name();    // a word or a quoted string
  std::string string();  // quoted
  int64_t integer();
  std::string_view rest();  // to the end of the line

  // An expression: up to a comma, a closing bracket, a quote, ':' or '=' alone, or one of the words if, else,
  // on, into, in, wrap, error, clamp, skip that stands outside brackets.
  sym::Expr expr();
  sym::Expr variable();                // a symbol or an index variable
  std::vector<sym::Expr> expr_list();  // [a, b]
  ValueId value();                     // %12

 private:
  std::string_view line_;
  size_t at_ = 0;
  int number_;
  size_t indent_;  // what stands before `line`, for columns in messages
};

}  // namespace stridec::loop
