// Emits attention's backward pass for Hopper (kernels/flash_backward.h): with all keys of a head in a
// thread block if they are few (flash_backward_heads.h), otherwise by tiles of keys
// (flash_backward_tiles.h). Every sum has a fixed order, so two runs give the same bits.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

// Requires fits_flash_backward(). The last choice, for more tiles than 31 bits count or sizes of 0, runs the
// nest's loops.
DeviceNest emit_flash_backward(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda
