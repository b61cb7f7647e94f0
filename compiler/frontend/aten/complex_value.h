// Values that are complex: pairs in the last dim of a real tensor, and numbers with an imaginary part.
#pragma once

#include <span>

#include "compiler/frontend/aten/value.h"
#include "compiler/ops/composite/complex_algebra.h"

namespace stridec::aten {

bool is_complex(const Value& value);
// Whether a value, or an item of a list, is complex, or is a complex dtype.
bool mentions_complex(const Value& value);
bool mentions_complex(std::span<const Value> values);

// A pair as one complex tensor. Both broadcast.
Tensor joined(Term real, Term imaginary);
Value joined_value(const ops::Complex& z);
Value joined_value(Builder& b, const Value& re, const Value& im);

// The parts of a real or complex number, in its own dtype or in another one.
ops::Complex pair_of(Builder& b, const Value& v);
ops::Complex pair_of(Builder& b, const Value& v, DType dtype);
// A part of a value, and of each item of a list.
Value part_of(Builder& b, const Value& v, bool imaginary);

}  // namespace stridec::aten
