// Expands the declaration of a variadic operator for a given number of tensors. The last input or the last
// output of such an operator stands for any number of tensors ("variadic": true in a file of --ops).
// docs/operators.md describes the notation.
#pragma once

#include <cstddef>
#include <string>

#include "compiler/extend/json_place.h"

namespace stridec::extend {

// How many tensors the variadic input and the variadic output stand for.
struct VariadicCounts {
  size_t inputs = 1, outputs = 1;
};

// Whether the member `list` ("inputs", "outputs") of a declaration ends with a variadic tensor. Throws
// Error if any other tensor is variadic.
bool is_variadic(const JsonPlace& declaration, const char* list);

// The declaration with tensors x_0, x_1, ... in place of a variadic x. Throws Error kMalformed for texts that
// use '@' wrongly, and kDoesNotFit where lists of different lengths are combined.
JsonPlace::Json expanded(const JsonPlace& declaration, const VariadicCounts& counts);

}  // namespace stridec::extend
