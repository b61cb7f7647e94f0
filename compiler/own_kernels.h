// Kernels of the user (--kernels) at the places of a graph that they compute: each is compared with the
// compiler's own kernels in results and in time, in a child process, and is used if it is faster.
#pragma once

#include "compiler/base/pass.h"
#include "compiler/pipeline.h"

namespace stridec {

// The code of warnings about kernels that are wrong or fail.
inline constexpr const char* kOwnKernel = "own-kernel";

// A kernel is chosen below this share of the time of the compiler's own: smaller differences are noise.
inline constexpr double kOwnKernelShare = 0.98;

// A pass on the graph. With --frozen nothing runs: what the tuning database says is repeated.
void run_own_kernels(Module& module, const PassContext& context);

}  // namespace stridec
