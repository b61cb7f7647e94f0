// Operators of complex numbers in terms of the same operators of their real and imaginary parts: those that
// move or add elements, products, functions, and tests.
#pragma once

#include <optional>
#include <span>

#include "compiler/frontend/aten/context.h"

namespace stridec::aten {

bool is_complex(const Value& value);

// A pair as one complex tensor. Both broadcast.
Tensor joined(Term real, Term imaginary);

// The length of the vector (x, y).
Term length_of(Term x, Term y);

// Whether a value, or an item of a list, is complex, or is a complex dtype.
bool mentions_complex(std::span<const Value> values);

// The results, or none if the operator has no rule here. `row` is its row for real numbers.
std::optional<Results> by_parts(Builder& b, const Schema& schema, const std::vector<Value>& values,
                                ImportFn row);

}  // namespace stridec::aten
