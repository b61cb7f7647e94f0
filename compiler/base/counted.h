// Numbers of things in texts.
#pragma once

#include <string>
#include <string_view>

#include "compiler/base/text.h"

namespace stridec {

// "1 tensor", "3 tensors"; `many`: the plural, if it is not `one` with an s.
template <class Count>
std::string counted(Count count, std::string_view one, std::string_view many = {}) {
  return count == 1 ? cat(count, " ", one) : many.empty() ? cat(count, " ", one, "s") : cat(count, " ", many);
}

}  // namespace stridec
