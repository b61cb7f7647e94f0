// Emits chains that stream over blocks of columns (kernels/streamed_chain.h) by mma.sync: attention's
// backward pass with any mask and head size, on any GPU with tensor cores for 16-bit floats.
//
// A thread block has a tile of rows, 16 per warp, in shared memory, and iterates over blocks of columns,
// which it loads ahead into a ring. All that lies between the products is in registers, in the layout of a
// product's result, which is also that of the first factor of the product that sums it.
#pragma once

#include "compiler/base/gpu_target.h"
#include "compiler/codegen/device_kernel.h"
#include "compiler/loop/program.h"

namespace stridec::codegen::cuda {

DeviceNest emit_streamed_chain(const loop::Program& program, const loop::Nest& nest, const GpuTarget& target);

}  // namespace stridec::codegen::cuda
