// Kernels as NVRTC builds them. Images are kept on disk as those of models are: texts that were built before, by an ordinary
// build's tests ahead of an instrumented one's, are not built again.
#pragma once

#include "compiler/codegen/cuda/build.h"

namespace stridec::test {

// Throws NVRTC's Error.
inline codegen::cuda::BuiltKernel built_kernel(const codegen::DeviceKernel& kernel, const GpuTarget& target) {
  codegen::cuda::BuiltKernel out = codegen::cuda::named(kernel, target);
  if (const auto error = codegen::cuda::compile_kernels({&out}, {.threads = 1})[0]) throw Error(*error);
  return out;
}

}  // namespace stridec::test
