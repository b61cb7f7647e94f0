// A condition on symbols that must hold for a result to be right, with the sentence that is reported if it
// fails.
//
// It is decided at compile time if the facts allow; otherwise the artifact checks it, with the same sentence.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/sym/expr.h"
#include "compiler/sym/facts.h"

namespace stridec::sym {

struct Guard {
  Expr condition;
  std::string sentence;      // "cannot add: dimension {0} of 'x' and {1} of 'y' differ"; {{ is a brace
  std::vector<Expr> values;  // what {0}, {1}, ... stand for
};

// The text as part of a sentence: its braces are doubled, so that none begins a placeholder.
std::string escaped(std::string_view text);

Answer check(const Guard& guard, const Facts& facts);

// The sentence with each placeholder replaced: by the number if the value is a single symbol or constant and
// `lookup` knows it; by the expression and the number if it is a compound expression; by the expression alone
// if `lookup` does not know all of its symbols.
std::string render(const Guard& guard, const std::function<std::optional<int64_t>(Expr)>& lookup);
std::string render(const Guard& guard);  // with expressions only

}  // namespace stridec::sym
