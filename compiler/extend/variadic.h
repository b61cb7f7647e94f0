// Operators whose last input, or last output, stands for any number of tensors ("variadic": true in a file of
// --ops): the declaration for a given number, by expanding its texts. docs/operators.md has the notation.
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
// Error if another one than the last is variadic.
bool is_variadic(const JsonPlace& declaration, const char* list);

// The declaration with tensors x_0, x_1, ... in place of a variadic x. Throws Error kMalformed for texts that
// use '@' wrongly, and kDoesNotFit where two lists of different lengths stand together.
JsonPlace::Json expanded(const JsonPlace& declaration, const VariadicCounts& counts);

}  // namespace stridec::extend
