// The sentences of requirements, of rules and of operators.
#pragma once

#include <string>
#include <vector>

#include "compiler/sym/expr.h"

namespace stridec::extend {

// What a requirement compares, for its sentence: the sides that are not constant, left before right.
std::vector<sym::Expr> compared_by(sym::Expr condition);
// Whether each brace of the sentence belongs to one of the placeholders {0} .. {count - 1}.
bool is_sentence(const std::string& sentence, size_t count);

}  // namespace stridec::extend
