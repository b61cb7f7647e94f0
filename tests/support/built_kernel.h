// Compiles kernels with NVRTC. Images are cached on disk like those of models, so an instrumented build's
// tests reuse the images of an ordinary build.
#pragma once

#include "compiler/codegen/cuda/build.h"

namespace stridec::test {

// Throws NVRTC's error.
inline codegen::cuda::BuiltKernel built_kernel(const codegen::DeviceKernel& kernel, const GpuTarget& target) {
  codegen::cuda::BuiltKernel out = codegen::cuda::named(kernel, target);
  if (const auto error = codegen::cuda::compile_kernels({&out}, {.threads = 1})[0]) throw Error(*error);
  return out;
}

}  // namespace stridec::test
