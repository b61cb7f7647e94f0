// The operators of PyTorch, for people.
#pragma once

#include <string>
#include <vector>

namespace stridec::aten {

struct OperatorSupport {
  std::string name;                                  // "aten.add"
  std::vector<std::string> supported, unsupported;  // overloads without out= and in-place ones
};
// Sorted by name. Operators that only write, in place or to `out`, belong to the one without.
std::vector<OperatorSupport> operator_support();

}  // namespace stridec::aten
