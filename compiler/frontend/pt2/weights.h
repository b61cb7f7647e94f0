// Stored tensors as row-major bytes.
#pragma once

#include <string>

#include "compiler/frontend/pt2/archive.h"
#include "compiler/frontend/pt2/scalar_type.h"

namespace stridec::pt2 {

struct Weight {
  graph::Type type;  // with a last dim of 2 for complex numbers
  bool complex = false;
  graph::Data data;  // points into the archive where the tensor is contiguous, a copy otherwise
};
// Throws Error for tensors that exceed their storage, have unknown types, or are missing, as in programs
// exported from fake tensors. With `missing_is_zero`, the latter are zeros.
Weight read_weight(const std::string& name, const StoredTensor& stored, bool missing_is_zero);

}  // namespace stridec::pt2
