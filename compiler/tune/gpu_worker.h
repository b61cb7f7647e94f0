// The child process of gpu.h.
#pragma once

#include "compiler/base/gpu_target.h"

namespace stridec::tune {

// Opens the driver, reports the result, and races the subjects it receives until the other end is closed.
void serve_gpu(const GpuTarget& target, int descriptor);

}  // namespace stridec::tune
