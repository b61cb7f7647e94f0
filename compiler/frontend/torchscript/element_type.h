// Element types in the numbering of TorchScript's sources, in which a dtype is an integer (c10::ScalarType).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/base/dtype.h"

namespace stridec::torchscript {

struct ElementType {
  DType dtype;
  bool complex = false;  // pairs of dtype
};
// None for types that stridec does not have.
std::optional<ElementType> element_type(int64_t number);
std::string element_type_name(int64_t number);
int64_t element_type_number(DType dtype, bool complex);
// "FloatStorage" of a pickle. None for names that are not storage.
std::optional<int64_t> storage_element_type(std::string_view storage);

}  // namespace stridec::torchscript
