// The element types that tensor cores multiply.
#pragma once

#include "compiler/base/dtype.h"

namespace stridec::kernels {

// On some GPU, with a factor of a type of the same kind; multiplies() says whether on a given one.
bool is_tensor_type(DType dtype);

}  // namespace stridec::kernels
