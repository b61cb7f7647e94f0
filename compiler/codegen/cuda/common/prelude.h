// What every CUDA text begins with: clang's builtins in CUDA's words, so that the common statement texts read the
// same, and the snippets that a GPU has instructions or library functions for.
#pragma once

#include <string_view>

#include "compiler/codegen/emit_text.h"

namespace stridec::codegen::cuda {

std::string_view prelude();

// For KernelText.
extern const CudaText kCudaText;

}  // namespace stridec::codegen::cuda
