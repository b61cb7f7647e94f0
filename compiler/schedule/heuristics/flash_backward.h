// Decides whether attention's backward pass runs as one kernel (kernels/flash_backward.h).
#pragma once

#include <string>

#include "compiler/base/gpu_target.h"
#include "compiler/loop/program.h"

namespace stridec::schedule {

// Whether the target has a kernel for the nest, at all sizes that the program allows apart from those beyond
// what a kernel counts in 32 bits. Otherwise sets `reason`.
bool fits_flash_backward(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target,
                         std::string* reason = nullptr);

}  // namespace stridec::schedule
