// The element types that tensor cores multiply.
#pragma once

#include "compiler/base/dtype.h"

namespace stridec::kernels {

// Whether the tensor cores of some GPU multiply values of this type by values of a type of the same kind.
// multiplies() answers for a given GPU.
bool is_tensor_type(DType dtype);

}  // namespace stridec::kernels
