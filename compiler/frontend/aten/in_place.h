// In-place operators that write no element.
#pragma once

#include "compiler/frontend/aten/schema.h"

namespace stridec::aten {

// Whether the operator changes the dims of a tensor in place and writes no element ("squeeze_"). `call`
// returns the tensor as it is from there on; names that the program has for it must follow.
bool changes_dims_in_place(const Schema& schema);

}  // namespace stridec::aten
