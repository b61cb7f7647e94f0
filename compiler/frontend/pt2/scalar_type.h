// Types of elements in the format's numbering.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/base/dtype.h"

namespace stridec::pt2 {

struct ElementType {
  DType dtype;
  bool complex = false;  // pairs of dtype
};
// The format's numbering (ScalarType of torch/_export/serde/schema.py). None for types without a meaning
// here.
std::optional<ElementType> element_type(int scalar_type);
std::string scalar_type_name(int scalar_type);
int scalar_type_of(std::string_view name);  // 0 if there is none of this name

}  // namespace stridec::pt2
