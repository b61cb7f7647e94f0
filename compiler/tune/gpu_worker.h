// The child process of gpu.h.
#pragma once

#include "compiler/base/gpu_target.h"

namespace stridec::tune {

// Opens the driver, says so, and races what it is sent until the other end is closed.
void serve_gpu(const GpuTarget& target, int descriptor);

}  // namespace stridec::tune
