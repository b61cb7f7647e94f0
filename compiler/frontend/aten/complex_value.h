// Complex values: real tensors whose last dim holds the real and the imaginary part, and numbers with an
// imaginary part.
#pragma once

#include <span>

#include "compiler/frontend/aten/value.h"
#include "compiler/ops/composite/complex.h"

namespace stridec::aten {

bool is_complex(const Value& value);
// Whether a value, or an item of a list, is complex or a complex dtype.
bool mentions_complex(const Value& value);
bool mentions_complex(std::span<const Value> values);

// Joins two parts, which broadcast, into one complex tensor.
Tensor joined(Term real, Term imaginary);
Value joined_value(const ops::Complex& z);
Value joined_value(Builder& b, const Value& re, const Value& im);

// The parts of a real or complex value, in its own dtype or in `dtype`.
ops::Complex pair_of(Builder& b, const Value& v);
ops::Complex pair_of(Builder& b, const Value& v, DType dtype);
// The real or imaginary part of a value; of a list, that of each item.
Value part_of(Builder& b, const Value& v, bool imaginary);

}  // namespace stridec::aten
