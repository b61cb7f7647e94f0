// Operators of complex numbers in terms of the same operators of their real and imaginary parts: those that
// move or add elements, products, functions, and tests.
#pragma once

#include <optional>
#include <span>

#include "compiler/frontend/aten/context.h"

namespace stridec::aten {

// Whether complex_rules.h has a rule for an operator, or for the one that it is the in-place form of.
bool has_complex_rule(const Schema& schema);
// The results, or none if the operator has no rule. `row` is its row for real numbers.
std::optional<Results> by_parts(Builder& b, const Schema& schema, const std::vector<Value>& values,
                                ImportFn row);

}  // namespace stridec::aten
