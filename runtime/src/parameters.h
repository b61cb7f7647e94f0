// Replaceable parameters: weights of the artifact of which a context may have its own values.
//
// The weights section ends with the replaceable parameters and those that are derived from them (packed,
// rounded, folded), of all functions. Contexts use the section itself until the first write, which copies
// this part of it; the next run of any function then computes the derived ones of every function, so that
// all functions run with the same values. On a GPU the copy in host memory is the one that is written and
// derived from, and the device gets the result.
#pragma once

#include "context.h"

namespace stridec::runtime {

stridec_status context_write_state(stridec_context* context, const char* name, const stridec_tensor* tensor);
stridec_status context_read_state(stridec_context* context, const char* name, stridec_tensor* tensor);
stridec_status context_parameters(stridec_context* context, uint64_t* offset, const void** bytes,
                                  uint64_t* count);

// Computes derived parameters if parameters were written since the last call.
stridec_status derive_parameters(stridec_context& context, Text& message);

// What stridec_abi_run.parameters is for a run of the context.
char* parameters_of(const stridec_context& context);

}  // namespace stridec::runtime
