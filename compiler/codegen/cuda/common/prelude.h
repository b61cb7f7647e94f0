// The start of every CUDA text: clang's builtins in terms of CUDA's, so that statement texts are shared with
// the CPU, and snippets that map to GPU instructions or library functions.
#pragma once

#include <string_view>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen::cuda {

std::string_view prelude();

// Snippet lookup for KernelText.
extern const CudaText kCudaText;

}  // namespace stridec::codegen::cuda
