// Copies between strided and compact tensors of a GPU, by a kernel that the artifact has for this
// (stridec_abi_target.copy_kernel).
#pragma once

#include "stridec/abi.h"
#include "tensor.h"

namespace stridec::runtime {

// One launch of the kernel.
struct CopyLaunch {
  int64_t words[STRIDEC_ABI_COPY_WORDS];
  int64_t blocks;
};

// Calls launch(user, ...) for each launch that the copy takes: none if there are no elements, one unless more
// than STRIDEC_ABI_COPY_OUTER + 2 loops or more tiles than a grid has are left after loops are merged.
// Returns false if a call does.
bool for_each_copy_launch(const StridedCopy& copy, bool (*launch)(void* user, const CopyLaunch& launch),
                          void* user);

}  // namespace stridec::runtime
