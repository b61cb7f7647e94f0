// A condition on symbols that must hold for a result to be right, with the sentence a user reads when it does
// not.
//
// Decided at compile time if the facts allow; what is left travels into the artifact and is checked there,
// with the same words.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/sym/expr.h"
#include "compiler/sym/facts.h"

namespace stridec::sym {

struct Guard {
  Expr condition;
  std::string sentence;      // "cannot add: dimension {0} of 'x' and {1} of 'y' differ"; {{ is a brace
  std::vector<Expr> values;  // what {0}, {1}, ... stand for
};

Answer check(const Guard& guard, const Facts& facts);

// The sentence with each placeholder replaced: by the number where `lookup` gives all symbols of the value,
// by the expression and the number if the value is not a single symbol or constant, by the expression alone
// without numbers.
std::string render(const Guard& guard, const std::function<std::optional<int64_t>(Expr)>& lookup);
std::string render(const Guard& guard);  // with expressions only

}  // namespace stridec::sym
