// PyTorch's type promotion (torch.result_type): tensors with dims outweigh rank-0 tensors, which outweigh
// Python numbers, as long as they are of the same category (bool, integer, float) or a higher one.
#pragma once

#include <span>

#include "compiler/frontend/aten/context.h"

namespace stridec::aten {

DType promote(DType a, DType b);  // torch.promote_types
DType result_type(Builder& b, std::span<const Value> values);
inline DType result_type(Builder& b, std::initializer_list<Value> values) {
  return result_type(b, std::span<const Value>(values.begin(), values.size()));
}

// Integers and bools become f32: the result type of sin, div, mean.
DType float_type(DType dtype);

// Two arguments, promoted to one dtype.
struct Operands {
  Term x, y;
};
Operands promoted(const Context& c, std::string_view x, std::string_view y);
Operands promoted_float(const Context& c, std::string_view x, std::string_view y);

}  // namespace stridec::aten
