#include "compiler/loop/fresh_symbol.h"

#include <algorithm>

#include "compiler/base/text.h"

namespace stridec::loop {

sym::Expr fresh_symbol(Program& program, const std::string& hint, sym::Expr lower, sym::Expr upper,
                       int& next) {
  const auto taken = [&](const std::string& name) {
    return std::ranges::any_of(program.symbols, [&](const Symbol& s) { return s.var.name() == name; });
  };
  std::string name = hint;
  while (taken(name)) name = cat(hint, "..", next++);
  const sym::Expr symbol = sym::var(name);
  program.symbols.push_back({.var = symbol});
  program.facts.assume(sym::le(lower, symbol));
  program.facts.assume(sym::le(symbol, upper));
  return symbol;
}

}  // namespace stridec::loop
