// Completes the text of a user's kernel (loop/user_kernel.h) to a translation unit: declarations of what
// the text may use, the text itself, and an entry function for the generated code.
#pragma once

#include <string>

#include "compiler/loop/user_kernel.h"

namespace stridec::codegen {

// A unit in C, self-contained. It defines a hidden function of the name `symbol`:
//   int symbol(void* const* data, const int64_t* sizes, char* scratch, int64_t begin, int64_t end)
// data: the first element of each tensor, reads first. sizes: the arguments of the call (UserArguments).
// Returns 0, or what the user's function returns. Errors name the place of the user's text and its lines.
// `f16c`: the target has conversion instructions for half floats.
std::string user_kernel_c(const loop::UserKernel& kernel, const std::string& symbol, bool f16c);

// The type of an element in the user's text: "float", "int8_t"; of 8-bit floats and below, "uint8_t".
std::string user_element_type(DType dtype, bool cuda);

// The user's function in CUDA as a device function of the same name and, as text, its call. `data` has C text
// for the first element of each tensor, and `sizes` for each of the call's arguments.
struct UserCudaText {
  std::string declarations, call;
};
UserCudaText user_kernel_cuda(const loop::UserKernel& kernel, const std::vector<std::string>& data,
                              const std::vector<std::string>& sizes);

}  // namespace stridec::codegen
