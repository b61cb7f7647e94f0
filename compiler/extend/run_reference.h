// Computes a call of a user's operator by its reference, on tensors in memory.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/extend/evaluate.h"
#include "compiler/extend/user_operator.h"

namespace stridec::extend {

struct CallTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims, strides;  // strides in elements
  uint8_t* data = nullptr;             // the element at index 0 of every dim
};

// Reads are those of all inputs of the declaration, in order; writes have the shapes and types of its
// outputs. `attributes` has values of all that are declared. Throws Error.
void run_reference(const UserOperator& op, std::span<const CallTensor> reads,
                   std::span<const CallTensor> writes,
                   const std::map<std::string, Attr, std::less<>>& attributes);

// The types that tensors of this declared type may have: those of the type variable, the class, or one.
std::vector<DType> types_of(const UserOperator& op, const std::string& type);

}  // namespace stridec::extend
